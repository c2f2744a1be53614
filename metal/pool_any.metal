    // Computes the maximum of each chunk of a window, and its index: -1 for an empty chunk, but 0 if a window has one chunk
    // and indices are window offsets. With SPLIT, a window has several chunks, which `pool_chunks` reduces.
    // With REGIONS, windows differ: `bounds` has those of the depth axis, then those of the height and of the width, and a
    // window covers the positions from bounds[.., 0, ..] to bounds[.., 1, ..] - 1. Otherwise they depend on `window`
    // (kernel, dilation) and `starts` (stride, padding), with 3 numbers each.
    //   x (B, D, H, W, C), bounds (B, OD + OH + OW, 2, 1 or C), window, starts, size = (OD, OH, OW, chunks)
    //   ->  out, indices (B, OD, OH, OW * chunks, C)
    // One thread: V neighbouring channels of one chunk; V is 1 if the bounds differ between channels. Each row of a window is
    // divided into runs of at most AT_ONCE elements, whose loads are independent. Chunk n has the runs n, n + chunks, ...
    // Grid: (OW * chunks * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2], chunks = SPLIT ? size[3] : 1;
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, ONE, PLANAR>(at, OD, OH, OW * chunks, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V, chunk = int(s.w % chunks);
    const AXIS ow = s.w / chunks;
    Run<AXIS> d, h, w;
    if (REGIONS) {
      const int columns = bounds_shape[3];
      const OFFSET line = OFFSET(at.z) * (OFFSET(OD) + OH + OW), column = columns == 1 ? 0 : s.c;
      d = run_between<AXIS>(bounds, (line + OFFSET(s.d)) * 2 * columns + column, columns);
      h = run_between<AXIS>(bounds, (line + OD + OFFSET(s.h)) * 2 * columns + column, columns);
      w = run_between<AXIS>(bounds, (line + OD + OH + OFFSET(ow)) * 2 * columns + column, columns);
    } else {
      d = run_of(s.d, window[0], starts[0], starts[3], window[3], D);
      h = run_of(s.h, window[1], starts[1], starts[4], window[4], H);
      w = run_of(ow, window[2], starts[2], starts[5], window[5], W);
    }
    // The coordinates of a run in the window (in runs, rows and layers), and their increments per step of `chunks` runs.
    const uint row = (uint(w.count) + (AT_ONCE - 1)) / AT_ONCE, layer = h.count;
    const INDEX all = INDEX(d.count) * layer * row;
    uint nw = 0, nh = 0, nd = 0, step_w = 1, step_h = 0, step_d = 0;
    if (SPLIT && all > 0) {
      nw = uint(chunk) % row, nh = uint(chunk) / row % layer, nd = uint(chunk) / row / layer;
      step_w = uint(chunks) % row, step_h = uint(chunks) / row % layer, step_d = uint(chunks) / row / layer;
    }

    const OFFSET plane = OFFSET(at.z) * D * H * W;
    T best[1][V];
    typename Order<T>::type order[V];
    I where[1][V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[0][v] = lowest<T>();
      order[v] = order_of(best[0][v]);
      where[0][v] = FLAT || chunks > 1 ? I(-1) : I(0);
    }
    // Counts down the remaining elements, because a number after the last one could overflow its type.
    const INDEX count = chunk < all ? (all - chunk - 1) / chunks + 1 : INDEX(0);
    for (INDEX left = count; left > 0; --left) {
      const INDEX pd = PLANAR ? INDEX(0) : INDEX(d.first) + INDEX(nd) * d.step, ph = INDEX(h.first) + INDEX(nh) * h.step;
      const INDEX first = (pd * H + ph) * W + INDEX(w.first); // the position and the number of the first element of the row
      const INDEX number = (INDEX(d.skipped + nd) * window[1] + INDEX(h.skipped + nh)) * window[2] + w.skipped;
      // After the end of a row, its last element is repeated.
      T value[AT_ONCE][V];
      #pragma unroll
      for (int e = 0; e < AT_ONCE; ++e) {
        const int n = int(nw) * AT_ONCE + e, near = n < w.count ? n : w.count - 1;
        load_columns<1, V, 1, true>(
            value + e, x, (plane + OFFSET(first)) * C + s.c, near * w.step, W, C, lanes, OFFSET(0));
      }
      #pragma unroll
      for (int e = 0; e < AT_ONCE; ++e) {
        const int n = int(nw) * AT_ONCE + e, near = n < w.count ? n : w.count - 1;
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          const auto rank = order_of(value[e][v]);
          const bool better = (e == 0 && left == count) || (rank > order[v]) | (value[e][v] != value[e][v]);
          best[0][v] = better ? value[e][v] : best[0][v];
          order[v] = better ? rank : order[v];
          where[0][v] = better ? I(FLAT ? first + near * w.step : number + near) : where[0][v];
        }
      }
      nw += step_w;
      nh += step_h + (nw >= row ? 1 : 0);
      nw -= nw >= row ? row : 0;
      nd += step_d + (nh >= layer ? 1 : 0);
      nh -= nh >= layer ? layer : 0;
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * chunks * C + s.c;
    store_columns<1, V, 1, true>(out, best, to, s.w, OW * chunks, C, lanes);
    store_indices<VALUES, 1, V, 1, true>(indices, where, to, s.w, OW * chunks, C, lanes);
