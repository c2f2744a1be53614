    // Computes the maximum of each chunk of a large window, and its index: -1 for an empty chunk, but 0 if a window has one
    // chunk and indices are window offsets. If a window has several chunks, `pool_chunks` reduces them.
    //   x (B, D, H, W, C), bounds as in `pool_regions`, window = kernel, stride, padding, dilation (3 numbers each),
    //   size = (OD, OH, OW, chunks)  ->  out, indices (B, OD, OH, OW * chunks, C)
    // One thread: V neighbouring channels of the elements n, n + chunks, n + 2 * chunks, ... of one window (chunk n).
    // Grid: (OW * chunks * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2], chunks = size[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, false, false>(at, OD, OH, OW * chunks, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = C - s.c < V ? C - s.c : V, chunk = int(s.w % chunks);
    const AXIS ow = s.w / chunks;
    Run<AXIS> d, h, w;
    if (REGIONS) {
      const int columns = bounds_shape[3];
      const OFFSET line = OFFSET(at.z) * (OFFSET(OD) + OH + OW), column = columns == 1 ? 0 : s.c;
      d = run_between<AXIS>(bounds, (line + OFFSET(s.d)) * 2 * columns + column, columns);
      h = run_between<AXIS>(bounds, (line + OD + OFFSET(s.h)) * 2 * columns + column, columns);
      w = run_between<AXIS>(bounds, (line + OD + OH + OFFSET(ow)) * 2 * columns + column, columns);
    } else {
      d = run_of(s.d, window[0], window[3], window[6], window[9], D);
      h = run_of(s.h, window[1], window[4], window[7], window[10], H);
      w = run_of(ow, window[2], window[5], window[8], window[11], W);
    }
    const INDEX all = INDEX(d.count) * h.count * w.count;
    // The coordinates of the element in the window, and their increments per step of `chunks` elements.
    const uint row = w.count > 0 ? w.count : 1, layer = h.count > 0 ? h.count : 1;
    uint nw = uint(chunk) % row, nh = uint(chunk) / row % layer, nd = uint(chunk) / row / layer;
    const uint step_w = uint(chunks) % row, step_h = uint(chunks) / row % layer, step_d = uint(chunks) / row / layer;

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
      const INDEX pd = INDEX(d.first) + INDEX(nd) * d.step, ph = INDEX(h.first) + INDEX(nh) * h.step;
      const INDEX position = (pd * H + ph) * W + (INDEX(w.first) + INDEX(nw) * w.step);
      const INDEX number = FLAT
          ? position
          : (INDEX(d.skipped + nd) * window[1] + INDEX(h.skipped + nh)) * window[2] + INDEX(w.skipped + nw);
      T value[1][V];
      load_columns<1, V, false, true>(value, x, (plane + OFFSET(position)) * C + s.c, 0, W, C, lanes, OFFSET(0));
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        const auto rank = order_of(value[0][v]);
        const bool better = left == count || (rank > order[v]) | (value[0][v] != value[0][v]);
        best[0][v] = better ? value[0][v] : best[0][v];
        order[v] = better ? rank : order[v];
        where[0][v] = better ? I(number) : where[0][v];
      }
      nw += step_w;
      nh += step_h + (nw >= row ? 1 : 0);
      nw -= nw >= row ? row : 0;
      nd += step_d + (nh >= layer ? 1 : 0);
      nh -= nh >= layer ? layer : 0;
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * chunks * C + s.c;
    store_columns<1, V, false, true>(out, best, to, s.w, OW * chunks, C, lanes);
    store_indices<VALUES, 1, V, false, true>(indices, where, to, s.w, OW * chunks, C, lanes);
