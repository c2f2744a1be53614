    // Computes the maximum of every window and its index: the first of equal maxima, or the last
    // NaN.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one window. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2];
    const WorkItem<N> at = work_item_of<N, V>(thread_position_in_grid, x_shape[0], OD, OH, OW, C);
    if (!at.exists) {
      return;
    }

    // The elements of the window.
    const Elements<N> d = elements_of<N>(at.d * SD - PD, KD, DD, PD, D),
                      h = elements_of<N>(at.h * SH - PH, KH, DH, PH, H);
    const Elements<N> w = elements_of<N>(at.w * SW - PW, KW, DW, PW, W);
    Maximum<T, N> best[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(FLAT ? -1 : 0);
    }

    // Loads and comparison. An element outside the plane is replaced by the nearest one inside;
    // comparing that twice changes nothing. The loop over the rows is unrolled only for small
    // windows, to limit the code size.
    if (!((DD > 1 && is_empty(d)) || (DH > 1 && is_empty(h)) || (DW > 1 && is_empty(w)))) {
      const N start =
          (position_of(d, d.first) * H + position_of(h, h.first)) * W + position_of(w, w.first);
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        best[v].index = FLAT ? start : (d.first * KH + h.first) * KW + w.first;
      }
      const int ROWS = KD * KH, UNROLLED = ROWS * KW > 9 ? 1 : ROWS;
      #pragma unroll(UNROLLED)
      for (int row = 0; row < ROWS; ++row) {
        const N kd = nearest(d, row / KH), kh = nearest(h, row % KH);
        const N line = (position_of(d, kd) * H + position_of(h, kh)) * W;
        #pragma unroll
        for (int k = 0; k < KW; ++k) {
          const N kw = nearest(w, k), position = line + position_of(w, kw);
          const auto value = x + ((at.b * D * H * W + position) * C + at.c);
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            include(best[v], value[v], FLAT ? position : (kd * KH + kh) * KW + kw);
          }
        }
      }
    }
    store<VALUES_ONLY, I, V>(
        out, indices, (((at.b * OD + at.d) * OH + at.h) * OW + at.w) * C + at.c, best);
