    // Computes the maximum of every window and its index: the first of equal maxima, or the last NaN.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one window. Grid: (OW * C / V, OD * OH, B).
    const int D = PLANAR ? 1 : x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = PLANAR ? 1 : size[0], OH = size[1], OW = size[2];
    const uint3 at = thread_position_in_grid;
    const WorkItem<N> s = work_item_of<N, V>(at, OD, OH, OW, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const Elements<N> d = elements_of<N>(s.d * SD - PD, KD, DD, PD, D), h = elements_of<N>(s.h * SH - PH, KH, DH, PH, H);
    const Elements<N> w = elements_of<N>(s.w * SW - PW, KW, DW, PW, W);
    const bool any = DD * DH * DW == 1 || (d.least <= d.most && h.least <= h.most && w.least <= w.most);
    // The loop over the rows is unrolled only for small windows, to limit the code size.
    const int ROWS = KD * KH, UNROLLED = ROWS * KW > 9 ? 1 : ROWS;

    Maximum<T, N> best[V];
    const N origin = (position_of(d, d.least) * H + position_of(h, h.least)) * W + position_of(w, w.least);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest_at<T, N>(FLAT ? origin : (d.least * KH + h.least) * KW + w.least);
    }
    #pragma unroll(UNROLLED)
    for (int row = 0; row < ROWS; ++row) {
      // An element outside the plane is replaced by the nearest one inside; reading that twice changes nothing.
      const N kd = nearest(d, row / KH), kh = nearest(h, row % KH);
      const N line = (position_of(d, kd) * H + position_of(h, kh)) * W;
      #pragma unroll
      for (int k = 0; k < KW; ++k) {
        const N kw = nearest(w, k), position = any ? line + position_of(w, kw) : N(0);
        const N here = FLAT ? position : (kd * KH + kh) * KW + kw;
        const auto from = x + ((N(at.z) * D * H * W + position) * C + s.c);
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          include(best[v], from[v], here);
        }
      }
    }
    const N to = ((N(at.z) * OD * OH + at.y) * OW + s.w) * C + s.c;
    const auto target = out + to;
    const auto index = indices + (VALUES_ONLY ? N(0) : to);
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      target[v] = any ? best[v].value : lowest<T>();
      if (!VALUES_ONLY) {
        index[v] = any ? I(best[v].where) : FLAT ? I(-1) : I(0);
      } else if (to + v == 0) {
        indices[0] = I(0);
      }
    }
