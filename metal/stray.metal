    // Marks the tiles of `place` that a flat index from outside its own window names, one bit a tile and
    // channel group: the only tiles where `place` and `pick` must look further than the covering windows.
    //   indices (B, OD, OH, OW, C), size = (D, H, W)  ->  strays (a bit for every thread of `place`)
    // One thread: V neighbouring channels of one cell. Grid: (OW * channel groups, OD * OH, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint TD = uint(D + PD + SD - 1) / SD, TH = uint(H + PH + SH - 1) / SH;
    const uint TW = uint(W + PW + SW - 1) / SW, groups = uint(C + V - 1) / V;
    const uint3 at = thread_position_in_grid;
    if (at.x >= OW * groups || at.y >= uint(OD) * OH || at.z >= uint(indices_shape[0])) {
      return;
    }
    const int ow = int(at.x / groups), c = int(at.x % groups) * V;
    const int od = int(at.y) / OH, oh = int(at.y) % OH;
    const int64_t cell = ((int64_t(at.z) * OD + od) * OH + oh) * OW + ow;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      if (TAIL && c + v >= C) {
        break;
      }
      const INDEX index = INDEX(indices[cell * C + c + v]);
      if (index < 0 || index >= INDEX(D) * H * W) {
        continue;
      }
      const Place p = place_of(index, H, W);
      const int kd = tap_at(p.d + PD - od * SD, KD, DD);
      const int kh = tap_at(p.h + PH - oh * SH, KH, DH);
      const int kw = tap_at(p.w + PW - ow * SW, KW, DW);
      if (kd < 0 || kh < 0 || kw < 0) {
        const uint td = uint(p.d + PD) / SD, th = uint(p.h + PH) / SH, tw = uint(p.w + PW) / SW;
        const int64_t tile =
            ((int64_t(at.z) * TD + td) * TH + th) * (TW * groups) + tw * groups + at.x % groups;
        set_bits(strays + tile / 32, uint32_t(1) << uint(tile % 32));
      }
    }
