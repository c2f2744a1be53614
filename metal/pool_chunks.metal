    // Reduces the maxima of the chunks (see `pool_any`) to the maximum of each window: the first of equal maxima, or the
    // last NaN.
    //   values, numbers (B, OD, OH, OW * chunks, C), size = (OD, OH, OW, chunks)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one window. Grid: (OW * channel groups, OD * OH, B).
    const int OD = size[0], OH = size[1], OW = size[2], chunks = size[3], C = ONE ? V : values_shape[4];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, ONE, PLANAR>(at, OD, OH, OW, C, values_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const OFFSET row = (OFFSET(at.z) * OD * OH + at.y) * OW * chunks * C + s.c;
    T best[1][V];
    typename Order<T>::type order[V];
    INDEX number[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[0][v] = lowest<T>();
      order[v] = order_of(best[0][v]);
      number[v] = -1;
    }
    // Four chunks at a time, whose loads are independent; after the end, the last chunk is repeated.
    for (int n = 0; n < chunks; n += 4) {
      T value[4][V];
      INDEX given[4][V];
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const AXIS column = s.w * chunks + (n + e < chunks ? n + e : chunks - 1);
        load_columns<1, V, 1, true>(value + e, values, row, column, OW * chunks, C, lanes, OFFSET(0));
        load_columns<1, V, 1, true>(given + e, numbers, row, column, OW * chunks, C, lanes, OFFSET(0));
      }
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          const auto rank = order_of(value[e][v]);
          const bool nan = value[e][v] != value[e][v], best_nan = best[0][v] != best[0][v];
          const bool higher = (rank > order[v]) | ((rank == order[v]) & (given[e][v] < number[v]));
          const bool better = (given[e][v] >= 0) &
              ((number[v] < 0) | (nan ? !best_nan | (given[e][v] > number[v]) : !best_nan & higher));
          best[0][v] = better ? value[e][v] : best[0][v];
          order[v] = better ? rank : order[v];
          number[v] = better ? given[e][v] : number[v];
        }
      }
    }
    I where[1][V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      where[0][v] = FLAT || number[v] >= 0 ? I(number[v]) : I(0);
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;
    store_columns<1, V, 1, true>(out, best, to, s.w, OW, C, lanes);
    store_indices<VALUES, 1, V, 1, true>(indices, where, to, s.w, OW, C, lanes);
