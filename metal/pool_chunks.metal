    // Reduces the chunks of each window to its maximum and index: the first of equal maxima, or the last NaN.
    //   values, numbers (B, OD, OH, OW * chunks, C) from `pool_any`; -1 for an empty chunk. size = (OD, OH, OW, chunks)
    //   ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one window. Grid: (OW * C / V, OD * OH, B).
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2], chunks = size[3], C = ONE ? V : values_shape[4];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW, C, values_shape[0]);
    if (s.beyond) {
      return;
    }
    const N to = (N(at.z) * OD * OH + at.y) * OW + s.w;
    Maximum<T, N> best[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(N(-1));
    }
    // Four chunks at a time, whose loads are independent; after the end, the last chunk is repeated.
    for (int n = 0; n < chunks; n += 4) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const N chunk = (to * chunks + (n + e < chunks ? n + e : chunks - 1)) * C + s.c;
        const auto chunk_values = values + chunk;
        const auto chunk_numbers = numbers + chunk;
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          const T value = chunk_values[v];
          const N number = N(chunk_numbers[v]);
          const auto rank = order_of(value);
          const bool nan = value != value, best_nan = best[v].value != best[v].value;
          const bool higher = (rank > best[v].order) | ((rank == best[v].order) & (number < best[v].where));
          const bool better = (number >= 0) &
              ((best[v].where < 0) | (nan ? !best_nan | (number > best[v].where) : !best_nan & higher));
          best[v].value = better ? value : best[v].value;
          best[v].order = better ? rank : best[v].order;
          best[v].where = better ? number : best[v].where;
        }
      }
    }
    const auto target = out + (to * C + s.c);
    const auto index = indices + (VALUES_ONLY ? N(0) : to * C + s.c);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = best[v].value;
      if (!VALUES_ONLY) {
        index[v] = FLAT || best[v].where >= 0 ? I(best[v].where) : I(0);
      } else if (to * C + s.c + v == 0) {
        indices[0] = I(0);
      }
    }
