    // The maximum of every window and its flat index, where the windows are not alike. One thread: one channel
    // of one cell. On each axis the cells are numbered on from those of the axis before; a window covers the
    // places from bounds[.., 0, ..] up to, not including, bounds[.., 1, ..].
    //   x (B, D, H, W, C), bounds (B, OD + OH + OW, 2, 1 or C), size = (OD, OH, OW)
    //   ->  out, indices (B, OD, OH, OW, C)
    // Grid: (OW * C, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2], columns = bounds_shape[3];
    const uint3 at = thread_position_in_grid;
    if (at.x >= uint(OW) * C || at.y >= uint(OD) * OH || at.z >= uint(x_shape[0])) {
      return;
    }
    const int ow = int(at.x) / C, c = int(at.x) % C, od = int(at.y) / OH, oh = int(at.y) % OH;
    const int64_t plane = int64_t(at.z) * D * H * W, row = int64_t(at.z) * (OD + OH + OW);
    const int column = columns == 1 ? 0 : c;
    const int64_t bd = (row + od) * 2 * columns + column;
    const int64_t bh = (row + OD + oh) * 2 * columns + column;
    const int64_t bw = (row + OD + OH + ow) * 2 * columns + column;
    const int first_d = bounds[bd], stop_d = bounds[bd + columns];
    const int first_h = bounds[bh], stop_h = bounds[bh + columns];
    const int first_w = bounds[bw], stop_w = bounds[bw + columns];

    T best = lowest<T>();
    I where = I((int64_t(first_d) * H + first_h) * W + first_w);
    for (int d = first_d; d < stop_d; ++d) {
      for (int h = first_h; h < stop_h; ++h) {
        for (int w = first_w; w < stop_w; ++w) {
          const int64_t place = (int64_t(d) * H + h) * W + w;
          const T value = x[(plane + place) * C + c];
          if (value > best || value != value) { // the last NaN wins
            best = value;
            where = I(place);
          }
        }
      }
    }
    const int64_t to = ((int64_t(at.z) * OD * OH + at.y) * OW + ow) * C + c;
    out[to] = best;
    indices[to] = where;
