    // Computes for each position the number of the last pooled value with that index, or -1. The
    // atomic maximum of integers does not depend on the order in which threads run.
    //   indices (B, OD, OH, OW, C); window and starts as in `pool_any`, for window offsets;
    //   size = (D, H, W)
    //   ->  winner (B, D, H, W, C), initialised to -1
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, indices_shape[0], OD, OH, OW, C);
    if (!at.exists) {
      return;
    }
    const N elements = N(D) * H * W, number = (at.d * OH + at.h) * OW + at.w,
            pooled = at.b * OD * OH * OW;
    for (int v = 0; v < V; ++v) {
      N index = N(indices[(pooled + number) * C + at.c + v]);
      if (!FLAT) {
        const int n = int(index), row = n / window[2], layer = row / window[1];
        const N kd = layer < window[0] ? layer : 0, kh = row % window[1], kw = n % window[2];
        const N d = at.d * starts[0] - starts[3] + kd * window[3],
                h = at.h * starts[1] - starts[4] + kh * window[4];
        const N w = at.w * starts[2] - starts[5] + kw * window[5];
        index = kd == layer && inside(d, h, w, D, H, W) ? (d * H + h) * W + w : N(-1);
      }
      if (index >= 0 && index < elements) {
        raise_to(winner + ((at.b * elements + index) * C + at.c + v), int32_t(number));
      }
    }
