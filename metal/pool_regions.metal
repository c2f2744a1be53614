    // Computes the maximum and its flat index for windows of different sizes: the first of equal maxima, or the last NaN.
    // `bounds` has the windows of the depth axis, then those of the height and of the width. A window covers the positions
    // from bounds[.., 0, ..] to bounds[.., 1, ..] - 1.
    //   x (B, D, H, W, C), bounds (B, OD + OH + OW, 2, 1 or C), size = (OD, OH, OW)
    //   ->  out, indices (B, OD, OH, OW, C)
    // One thread: one window in V neighbouring channels. V is 1 if the bounds differ between channels.
    // Grid: (OW * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2], columns = bounds_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, ONE, PLANAR>(at, OD, OH, OW, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V, column = columns == 1 ? 0 : s.c;
    const OFFSET plane = OFFSET(at.z) * D * H * W, line = OFFSET(at.z) * (OFFSET(OD) + OH + OW);
    const OFFSET bd = (line + OFFSET(s.d)) * 2 * columns + column;
    const OFFSET bh = (line + OD + OFFSET(s.h)) * 2 * columns + column;
    const OFFSET bw = (line + OD + OH + OFFSET(s.w)) * 2 * columns + column;
    const int first_d = bounds[bd], stop_d = bounds[bd + columns];
    const int first_h = bounds[bh], stop_h = bounds[bh + columns];
    const int first_w = bounds[bw], stop_w = bounds[bw + columns];

    T best[1][V];
    typename Order<T>::type order[V];
    I where[1][V];
    bool first = true;
    for (int d = first_d; d < stop_d; ++d) {
      for (int h = first_h; h < stop_h; ++h) {
        const INDEX row = (INDEX(d) * H + h) * W;
        // Four elements at a time, enough for most windows; after the end, the last element is repeated.
        for (int left = stop_w - first_w; left > 0; left -= 4) {
          const int w = stop_w - left;
          T value[4][V];
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int near = e < left ? w + e : stop_w - 1;
            load_columns<1, V, false, true>(
                value + e, x, (plane + OFFSET(row)) * C + s.c, near, W, C, lanes, OFFSET(0));
          }
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int near = e < left ? w + e : stop_w - 1;
            #pragma unroll
            for (int v = 0; v < V; ++v) {
              const auto rank = order_of(value[e][v]);
              const bool better = first || (rank > order[v]) | (value[e][v] != value[e][v]);
              best[0][v] = better ? value[e][v] : best[0][v];
              order[v] = better ? rank : order[v];
              where[0][v] = better ? I(row + near) : where[0][v];
            }
            first = false;
          }
        }
      }
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;
    store_columns<1, V, false, true>(out, best, to, s.w, OW, C, lanes);
    store_indices<VALUES, 1, V, false, true>(indices, where, to, s.w, OW, C, lanes);
