    // Pooled values added up at their places, zero elsewhere, where the windows are not alike. Every output is
    // written once, by the thread that owns it: one channel of one place.
    //   values, indices (B, OD, OH, OW, C), size = (D, H, W),
    //   covering (D + H + W, 2): for each place of an axis the first cell whose window may cover it, and
    //   the first one that follows those  ->  out (B, D, H, W, C)
    // Grid: (W * C, D * H, B).
    const int D = size[0], H = size[1], W = size[2], C = values_shape[4];
    const int OD = values_shape[1], OH = values_shape[2], OW = values_shape[3];
    const uint3 at = thread_position_in_grid;
    if (at.x >= uint(W) * C || at.y >= uint(D) * H || at.z >= uint(values_shape[0])) {
      return;
    }
    const int w = int(at.x) / C, c = int(at.x) % C, d = int(at.y) / H, h = int(at.y) % H;
    const int64_t place = (int64_t(d) * H + h) * W + w, cells = int64_t(at.z) * OD * OH * OW;
    const int cd = 2 * d, ch = 2 * (D + h), cw = 2 * (D + H + w);

    ACC sum = ACC(0);
    for (int od = covering[cd]; od < covering[cd + 1]; ++od) {
      for (int oh = covering[ch]; oh < covering[ch + 1]; ++oh) {
        for (int ow = covering[cw]; ow < covering[cw + 1]; ++ow) {
          const int64_t cell = (cells + (int64_t(od) * OH + oh) * OW + ow) * C + c;
          if (INDEX(indices[cell]) == INDEX(place)) {
            sum = ACC(sum + ACC(values[cell]));
          }
        }
      }
    }
    out[(int64_t(at.z) * D * H * W + place) * C + c] = T(sum);
