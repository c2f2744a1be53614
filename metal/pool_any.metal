    // Computes the maximum of each chunk of a window, and its index: -1 for an empty chunk, but 0 if a window has one chunk
    // and indices are window offsets. With SPLIT, a window has several chunks, which `pool_chunks` reduces.
    // With REGIONS, windows differ: `bounds` has those of the depth axis, then those of the height and of the width, and a
    // window covers the positions from bounds[.., 0, ..] to bounds[.., 1, ..] - 1. Otherwise they depend on `window`
    // (kernel, dilation) and `starts` (stride, padding), with 3 numbers each.
    //   x (B, D, H, W, C), bounds (B, OD + OH + OW, 2, 1 or C), window, starts, size = (OD, OH, OW, chunks)
    //   ->  out, indices (B, OD, OH, OW * chunks, C)
    // One thread: V neighbouring channels of one chunk; V is 1 if the bounds differ between channels. Each row of a window is
    // divided into runs of at most BLOCK elements, whose loads are independent. Chunk n has the runs n, n + chunks, ...
    // Grid: (OW * chunks * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2], chunks = SPLIT ? size[3] : 1;
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW * chunks, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int chunk = int(s.w % chunks);
    const N ow = s.w / chunks;
    Elements<N> d, h, w;
    if (REGIONS) {
      const int columns = bounds_shape[3];
      const N line = N(at.z) * (N(OD) + OH + OW), column = columns == 1 ? 0 : s.c;
      d = elements_between<N>(bounds, (line + s.d) * 2 * columns + column, columns);
      h = elements_between<N>(bounds, (line + OD + s.h) * 2 * columns + column, columns);
      w = elements_between<N>(bounds, (line + OD + OH + ow) * 2 * columns + column, columns);
    } else {
      d = elements_of<N>(s.d * starts[0] - starts[3], window[0], window[3], starts[3], D);
      h = elements_of<N>(s.h * starts[1] - starts[4], window[1], window[4], starts[4], H);
      w = elements_of<N>(ow * starts[2] - starts[5], window[2], window[5], starts[5], W);
    }
    // The coordinates of a run in the window (in runs, rows and layers), and their increments per step of `chunks` runs.
    const N columns = count_of(w);
    const uint row = (uint(columns) + (BLOCK - 1)) / BLOCK, layer = uint(count_of(h));
    const N all = count_of(d) * layer * row;
    uint nw = 0, nh = 0, nd = 0, step_w = 1, step_h = 0, step_d = 0;
    if (SPLIT && all > 0) {
      nw = uint(chunk) % row, nh = uint(chunk) / row % layer, nd = uint(chunk) / row / layer;
      step_w = uint(chunks) % row, step_h = uint(chunks) / row % layer, step_d = uint(chunks) / row / layer;
    }

    Maximum<T, N> best[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(FLAT || chunks > 1 ? N(-1) : N(0));
    }
    // Counts down the remaining elements, because a number after the last one could overflow its type.
    const N count = chunk < all ? (all - chunk - 1) / chunks + 1 : N(0);
    for (N left = count; left > 0; --left) {
      const N kd = d.least + N(nd), kh = h.least + N(nh);
      const N line = (N(at.z) * D + position_of(d, kd)) * H + position_of(h, kh), first = (line - N(at.z) * D * H) * W;
      const N number = (kd * window[1] + kh) * window[2];
      // After the end of a row, its last element is repeated.
      #pragma unroll
      for (int e = 0; e < BLOCK; ++e) {
        const N n = N(nw) * BLOCK + e, kw = w.least + (n < columns ? n : columns - 1), at_w = position_of(w, kw);
        const N here = FLAT ? first + at_w : number + kw;
        const auto from = x + ((line * W + at_w) * C + s.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          best[v].where = e == 0 && left == count ? here : best[v].where;
          include(best[v], from[v], here);
        }
      }
      nw += step_w;
      nh += step_h + (nw >= row ? 1 : 0);
      nw -= nw >= row ? row : 0;
      nd += step_d + (nh >= layer ? 1 : 0);
      nh -= nh >= layer ? layer : 0;
    }
    const N to = ((N(at.z) * OD * OH + at.y) * OW * chunks + s.w) * C + s.c;
    const auto target = out + to;
    const auto index = indices + (VALUES_ONLY ? N(0) : to);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = best[v].value;
      if (!VALUES_ONLY) {
        index[v] = I(best[v].where);
      } else if (to + v == 0) {
        indices[0] = I(0);
      }
    }
