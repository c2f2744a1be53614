    // Computes for each position the number of the last pooled value with that index, or -1. The atomic maximum of integers
    // does not depend on the order in which threads run.
    //   indices (B, OD, OH, OW, C), window and starts as in `pool_any` (used for window offsets), size = (D, H, W)
    //   ->  winner (B, D, H, W, C), initialised to -1
    // One thread: V neighbouring channels of one pooled value. Grid: (OW * channel groups, OD * OH, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, false, false>(at, OD, OH, OW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const OFFSET plane = OFFSET(at.z) * D * H * W, pooled = OFFSET(at.z) * OD * OH * OW;
    const OFFSET number = OFFSET(at.y) * OW + OFFSET(s.w);
    for (int v = 0; v < V && s.c + v < C; ++v) {
      INDEX index = INDEX(indices[(pooled + number) * C + s.c + v]);
      if (!FLAT) {
        index = position_of(index, s.d, s.h, s.w, window, starts, D, H, W);
      }
      if (index >= 0 && index < INDEX(D) * H * W) {
        raise_to(winner + ((plane + OFFSET(index)) * C + s.c + v), int32_t(number));
      }
    }
