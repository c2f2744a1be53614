"""Tables of classes as other tools write them."""

import pytest
from helpers.masks import error_of
from mlx_unpool_zoo.data.tables import completed, palette, read_table

TWO = [("road", None, [128, 64, 128]), ("traffic light", None, [250, 170, 30])]
NUMBERED = [("road", 1, [128, 64, 128]), ("traffic light", 5, [250, 170, 30])]
OBJECTS = '{"name": "road", "color": "#804080"%s}, {"name": "traffic light", "color": "#FAAA1E"%s}'
IDS = ', "id": 1', ', "id": 5'
NAMED, LABELLED = ([(name, label, None) for (name, _, _), label in zip(TWO, x)] for x in ([None] * 2, (1, 5)))


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("1 road 128 64 128\n5 traffic light 250 170 30\n", NUMBERED),
        ("# FreeSurfer\n1  road  128 64 128 0\n\n5  traffic light  250 170 30 0", NUMBERED),
        ('1 128 64 128 1 1 1 "road"\n5 250 170 30 1 1 1 "traffic light"', NUMBERED),  # ITK-SNAP
        ("1,128,64,128,255,road\n5,250,170,30,255,traffic light", NUMBERED),  # QGIS
        ("128 64 128\troad\n250 170 30\t\ttraffic light\n", TWO),  # CamVid
        ("road,128,64,128\ntraffic light,250,170,30\n", TWO),
        ("name,r,g,b\nroad,128,64,128\ntraffic light,250,170,30\n", TWO),  # Kaggle
        ('sep=;\nID;"Name";Colour\n1;road;#804080\n5;traffic light;"250, 170, 30"\n', NUMBERED),
        ("#804080 road\n#faaa1e traffic light\n", TWO),
        ("# label:color_rgb:parts:actions\nroad:128,64,128:a,b:\ntraffic light:250,170,30::\n", TWO),  # CVAT
        ("Pixel Value, Class\n1, road\n5, traffic light\n", LABELLED),  # Roboflow
        ("Idx,Ratio,Stuff,Name\n1,0.2,1,road\n5,0.1,1,traffic light\n", LABELLED),  # ADE20K
        ("1: road\n5: traffic light", LABELLED),
        ("road\t1\ntraffic light\t5", LABELLED),
        ("road\n\ntraffic light", NAMED),
        ("name\nroad\ntraffic light", NAMED),
        ("road;;\ntraffic light;;\n", NAMED),
        (f"[{OBJECTS % IDS}]", NUMBERED),  # CVAT
        ('{"i": 1, "categories": [{"name": "road", "id": 1}, {"name": "traffic light", "id": 5}]}', LABELLED),
        (f'{{"classes": [{OBJECTS % ("", "")}]}}', TWO),
        ('{"road": [128, 64, 128], "traffic light": [250, 170, 30]}', TWO),  # Supervisely
        ('{"id2label": {"1": "road", "5": "traffic light"}, "label2id": {"road": 1}}', LABELLED),
        ("['road', 'traffic light']", NAMED),
        ("- road\n- traffic light\n", NAMED),
        ("labels\nroad\ntraffic light", NAMED),
        ('{"channel_names": {"0": "CT"}, "labels": {"road": 1, "traffic light": 5}}', LABELLED),  # nnU-Net
        ('{"labels": {"1": "road", "5": "traffic light"}, "numTraining": 5}', LABELLED),
        (",id,name\n0,1,road\n1,5,traffic light\n", LABELLED),  # the first column is the index of pandas
        (",name\n1,road\n5,traffic light\n", LABELLED),
        ('1,"road, new"\n5,car (red)', [("road, new", 1, None), ("car (red)", 5, None)]),
        ('"road, new",9,9,9\ncar (red) 8 8 8', [("road, new", None, [9] * 3), ("car (red)", None, [8] * 3)]),
        ("class 0\nclass 1\n", [("class 0", None, None), ("class 1", None, None)]),
        ("0 lane 1\n1 lane 2\n", [("lane 1", 0, None), ("lane 2", 1, None)]),
        ("__ignore__\n_background_", [("__ignore__", -1, None), ("_background_", 0, None)]),
        ("name,trainId\nroad,0\nego,255\nsky,255", [("road", 0, None), ("ego", -1, None), ("sky", -1, None)]),
    ],
)  # fmt: skip
def test_tables_of_other_tools(text, classes, tmp_path):
    path = tmp_path / "any name"
    for encoded in (text.encode(), text.replace("\n", "\r\n").encode("utf-8-sig"), text.encode("utf-16")):
        path.write_bytes(encoded)
        assert [(c["name"], c.get("label"), c.get("colour")) for c in read_table(path)] == classes
    path.write_bytes(text.replace("\n", "\r").encode())
    assert [c["name"] for c in completed(read_table(path))] == [name for name, _, _ in classes]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("road\n128 64 128", "in the same form in each line, unlike '128 64 128'."),
        ("1\n2\n", "'1' has numbers or a colour in place of a name."),
        ("#804080\n#faaa1e", "'#804080' has numbers or a colour in place of a name."),
        ("class\n0\n1", "'0' has numbers or a colour in place of a name."),
        ("road 0.5 0.2 0.5\nsky 0 0 1", "must have whole numbers, unlike '0.5'."),
        ("road 128 64 256\nsky 0 0 1", "three numbers from 0 to 255, unlike ['128', '64', '256']."),
        ("name,id,trainId\nroad,7,0", "several columns of numbers, id and trainid: keep that of the masks."),
        ("Klasse;Rot\nroad;1", "in the same form in each line, unlike 'road;1'."),
        ("{\\rtf1 road", "cannot be read as JSON or YAML: "),
        ("road\nroad", "has the same name twice: road."),
        ("0 a\n1 b\n1 c", "has the same number twice: 1."),
        ("0 a\n1 b\n1 void", "has the same number twice: 1."),
        ("road,1,2,3\nsky,1,2,3", "has the same colour twice: road, sky."),
        ("<View><Label value='road'/></View>", "but is XML."),
        ("road,red\nsky,blue", "'road,red' has a colour by its name: write its red, green and blue."),
        ("128 64 128 255 road\n0 0 1 255 sky", "may have a number and a colour, or a colour and its alpha."),
        ('{"road": {"id": 1}, "sky": {"id": 2}}', "or an object with a number or a colour [red, green"),
        ('[{"name": "road", "color": {"r": 1}}]', "colours of three numbers from 0 to 255, unlike {'r'"),
        ("0 a\n70000 b", "must have numbers from 0 to 65535, unlike b."),
        ("\n# nothing\n", "but has no classes."),
        (b"caf\xe9\nsky", "must be UTF-8 text (in a spreadsheet: CSV UTF-8)"),
        (b"PK\3\4\0\0\0", "must be UTF-8 text, but is another kind of file."),
    ],
)
def test_lines_that_are_not_understood_are_named(text, said, tmp_path):
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    found = error_of(read_table, tmp_path / "t.csv")
    assert found.startswith(f"{tmp_path}/t.csv ")
    assert said in found


def test_classes_without_colours_get_distinct_ones(tmp_path):
    assert all(len({*map(tuple, palette(count))}) == count for count in range(255))
    (tmp_path / "names").write_text("\n".join(f"class {n}" for n in range(150)))
    voc = {0: [0, 0, 0], 1: [128, 0, 0], 20: [0, 64, 128]}
    table = completed(read_table(tmp_path / "names"))
    assert {n: table[n]["colour"] for n in voc} == voc
