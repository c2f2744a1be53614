    // The maximum of large windows, which several threads share: of each share of a window, its maximum and where that is.
    // Where a window is one share, this is all; else `pool_chunks` goes on.
    //   x (B, D, H, W, C), bounds as in `pool_regions`, window = kernel, stride, padding, dilation (3 numbers each),
    //   size = (OD, OH, OW, shares)  ->  out, indices (B, OD, OH, OW * shares, C); -1 for a share without an element
    // One thread: V neighbouring channels of the elements s, s + shares, s + 2 * shares, ... of one window.
    // Grid: (OW * shares * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2], shares = size[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, 1, false, false>(at, OD, OH, OW * shares, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = C - s.c < V ? C - s.c : V, share = int(s.w % shares);
    const AXIS ow = s.w / shares;
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
    // The element's number on each axis, and what a step of `shares` elements adds.
    const uint row = w.count > 0 ? w.count : 1, layer = h.count > 0 ? h.count : 1;
    uint nw = uint(share) % row, nh = uint(share) / row % layer, nd = uint(share) / row / layer;
    const uint step_w = uint(shares) % row, step_h = uint(shares) / row % layer, step_d = uint(shares) / row / layer;

    const OFFSET plane = OFFSET(at.z) * D * H * W;
    T best[1][V];
    typename Order<T>::type order[V];
    I where[1][V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[0][v] = lowest<T>();
      order[v] = order_of(best[0][v]);
      where[0][v] = FLAT || shares > 1 ? I(-1) : I(0);
    }
    // How many elements are left; a number behind the last one could be too large for its type.
    const INDEX count = share < all ? (all - share - 1) / shares + 1 : INDEX(0);
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
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * shares * C + s.c;
    store_columns<1, V, false, true>(out, best, to, s.w, OW * shares, C, lanes);
    store_columns<1, V, false, true>(indices, where, to, s.w, OW * shares, C, lanes);
