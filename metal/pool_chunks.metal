    // Reduces the chunks of each window to its maximum and index: the first of equal maxima, or the
    // last NaN.
    //   values, numbers (B, OD, OH, OW * chunks, C) from `pool_any`; -1 for an empty chunk.
    //   size = (OD, OH, OW, chunks)
    //   ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one window. Grid: (OW * C / V, OD * OH, B).
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2], chunks = size[3],
              C = ONE ? V : values_shape[4];
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, values_shape[0], OD, OH, OW, C);
    if (!at.exists) {
      return;
    }
    const N window = ((at.b * OD + at.d) * OH + at.h) * OW + at.w;
    Maximum<T, N> best[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(N(-1));
    }

    // Loads and comparison, of four chunks at a time, whose loads are independent; after the end,
    // the last one is repeated.
    for (int n = 0; n < chunks; n += 4) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const N from = (window * chunks + (n + e < chunks ? n + e : chunks - 1)) * C + at.c;
        const auto value = values + from;
        const auto number = numbers + from;
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          const N index = N(number[v]);
          const auto order = order_of(T(value[v]));
          const bool nan = value[v] != value[v], best_nan = best[v].value != best[v].value;
          const bool higher =
              (order > best[v].order) | ((order == best[v].order) & (index < best[v].index));
          const bool better = nan ? !best_nan | (index > best[v].index) : !best_nan & higher;
          replace_if((index >= 0) & ((best[v].index < 0) | better), best[v], T(value[v]), index);
        }
      }
    }

    // Store. A window without elements has the index -1, or the offset 0.
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v].index = FLAT || best[v].index >= 0 ? best[v].index : N(0);
    }
    store<VALUES_ONLY, I, V>(out, indices, window * C + at.c, best);
