    // Computes the maximum of each chunk of a window, and its index: -1 for an empty chunk, but 0
    // if a window has one chunk and indices are window offsets. With SPLIT, a window has several
    // chunks, which `pool_chunks` reduces.
    // With REGIONS, windows differ: `bounds` has those of the depth axis, then those of the height
    // and of the width, and a window covers the positions from bounds[.., 0, ..] to
    // bounds[.., 1, ..] - 1. Otherwise they depend on `window` (kernel, dilation) and `starts`
    // (stride, padding), with 3 numbers each.
    //   x (B, D, H, W, C), bounds (1 or B, OD + OH + OW, 2, 1 or C), window, starts,
    //   size = (OD, OH, OW, chunks)
    //   ->  out, indices (B, OD, OH, OW * chunks, C)
    // One thread: V neighbouring channels of one chunk; V is 1 if the bounds differ between
    // channels. Each row of a window is divided into blocks of at most BLOCK elements, whose loads
    // are independent. Chunk n has the blocks n, n + chunks, ...
    // Grid: (OW * chunks * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2], chunks = SPLIT ? size[3] : 1;
    const WorkItem<N> at =
        work_item_of<N, V>(thread_position_in_grid, x_shape[0], OD, OH, OW * chunks, C);
    if (!at.exists) {
      return;
    }

    // The elements of the window.
    const int chunk = int(at.w % chunks);
    const N ow = at.w / chunks;
    Elements<N> d, h, w;
    if (REGIONS) {
      const int BB = bounds_shape[0], BC = bounds_shape[3];
      const N image = BB == 1 ? N(0) : at.b * (N(OD) + OH + OW), c = BC == 1 ? 0 : at.c;
      d = elements_between<N>(bounds, (image + at.d) * 2 * BC + c, BC);
      h = elements_between<N>(bounds, (image + OD + at.h) * 2 * BC + c, BC);
      w = elements_between<N>(bounds, (image + OD + OH + ow) * 2 * BC + c, BC);
    } else {
      d = elements_of<N>(at.d * starts[0] - starts[3], window[0], window[3], starts[3], D);
      h = elements_of<N>(at.h * starts[1] - starts[4], window[1], window[4], starts[4], H);
      w = elements_of<N>(ow * starts[2] - starts[5], window[2], window[5], starts[5], W);
    }

    // The coordinates of a block in the window (in blocks, rows and layers), and their increments
    // per `chunks` blocks.
    const N last = w.last - w.first;
    const uint row = is_empty(w) ? 0 : uint(last) / BLOCK + 1,
               layer = is_empty(h) ? 0 : uint(h.last - h.first + 1);
    const N blocks = is_empty(d) ? N(0) : (d.last - d.first + 1) * layer * row;
    uint nw = 0, nh = 0, nd = 0, step_w = 1, step_h = 0, step_d = 0;
    if (SPLIT && blocks > 0) {
      nw = uint(chunk) % row, nh = uint(chunk) / row % layer, nd = uint(chunk) / row / layer;
      step_w = uint(chunks) % row, step_h = uint(chunks) / row % layer,
      step_d = uint(chunks) / row / layer;
    }
    // Counts down the remaining blocks: a number after the last one could overflow its type.
    const N count = chunk < blocks ? (blocks - chunk - 1) / chunks + 1 : N(0);
    Maximum<T, N> best[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(FLAT || chunks > 1 ? N(-1) : N(0));
    }

    // Loads and comparison. After the end of a row, its last element is repeated.
    for (N left = count; left > 0; --left) {
      const N kd = d.first + N(nd), kh = h.first + N(nh),
              line = (position_of(d, kd) * H + position_of(h, kh)) * W;
      #pragma unroll
      for (int e = 0; e < BLOCK; ++e) {
        const N n = N(nw) * BLOCK + e, kw = w.first + (n < last ? n : last),
                position = line + position_of(w, kw);
        const N index = FLAT ? position : (kd * window[1] + kh) * window[2] + kw;
        const auto value = x + ((at.b * D * H * W + position) * C + at.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          best[v].index = e == 0 && left == count ? index : best[v].index;
          include(best[v], value[v], index);
        }
      }
      nw += step_w;
      nh += step_h + (nw >= row ? 1 : 0);
      nw -= nw >= row ? row : 0;
      nd += step_d + (nh >= layer ? 1 : 0);
      nh -= nh >= layer ? layer : 0;
    }
    store<VALUES_ONLY, I, V>(
        out, indices, (((at.b * OD + at.d) * OH + at.h) * OW * chunks + at.w) * C + at.c, best);
