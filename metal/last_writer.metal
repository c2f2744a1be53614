    // Computes for each position the number of the last pooled value with that index, or -1. The atomic maximum of integers
    // does not depend on the order in which threads run.
    //   indices (B, OD, OH, OW, C), window and starts as in `pool_any` (used for window offsets), size = (D, H, W)
    //   ->  winner (B, D, H, W, C), initialised to -1
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = PLANAR ? 1 : indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const N elements = N(D) * H * W, number = N(at.y) * OW + s.w, pooled = N(at.z) * OD * OH * OW;
    for (int v = 0; v < V; ++v) {
      N index = N(indices[(pooled + number) * C + s.c + v]);
      if (!FLAT) {
        const int n = int(index), line = n / window[2], kd = line / window[1], kh = line - kd * window[1];
        const N d = s.d * starts[0] - starts[3] + N(kd) * window[3], h = s.h * starts[1] - starts[4] + N(kh) * window[4];
        const N w = s.w * starts[2] - starts[5] + N(n - line * window[2]) * window[5];
        const bool inside = kd < window[0] && within(d, D) && within(h, H) && within(w, W);
        index = inside ? (d * H + h) * W + w : N(-1);
      }
      if (index >= 0 && index < elements) {
        raise_to(winner + ((N(at.z) * elements + index) * C + s.c + v), int32_t(number));
      }
    }
