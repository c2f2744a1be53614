    // The maximum of every window and where it is: the first of equals, but the last NaN.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of X neighbouring windows. Grid: (OW / X * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2];
    const uint3 at = thread_position_in_grid;
    const WorkItem s = work_item_of<V, X, ONE, PLANAR>(at, OD, OH, OW, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const int d0 = s.d * SD - PD, h0 = s.h * SH - PH, w0 = s.w * SW - PW;
    const OFFSET plane = OFFSET(at.z) * D * H * W, all = OFFSET(x_shape[0]) * D * H * W * C;
    const int COUNT = (X - 1) * SW + KW; // elements of a row, from the first window to the last

    T best[X][V];
    typename Order<T>::type order[X][V];
    I where[X][V];
    #pragma unroll
    for (int line = 0; line < KD * KH; ++line) {
      // A window that stands over the edge looks again at its outermost element, which changes nothing.
      const int kd = INSIDE ? line / KH : nearest_inside(line / KH, d0, DD, D, PD);
      const int kh = INSIDE ? line % KH : nearest_inside(line % KH, h0, DH, H, PH);
      const int d = clamped_if<(DD > 1)>(d0 + kd * DD, D), h = clamped_if<(DH > 1)>(h0 + kh * DH, H);
      const INDEX row = (INDEX(d) * H + h) * W, first = FLAT ? row + w0 : INDEX((kd * KH + kh) * KW);
      const OFFSET from = (plane + OFFSET(row)) * C + s.c;
      T value[COUNT][V];
      if (DW == 1) {
        load_columns<COUNT, V, RUN, INSIDE>(value, x, from, w0, W, C, lanes, all);
        outermost_again<COUNT, V, PW, RUN && !INSIDE>(value, w0, W);
      } else {
        #pragma unroll
        for (int e = 0; e < COUNT; ++e) { // X is 1
          const int w = clamped(w0 + nearest_inside(e, w0, DW, W, PW) * DW, W);
          load_columns<1, V, RUN, true>(value + e, x, from, w, W, C, lanes, all);
        }
      }
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        #pragma unroll
        for (int kw = 0; kw < KW; ++kw) {
          const int e = i * SW + kw, nw = INSIDE ? e : nearest_inside(e, w0, DW, W, PW);
          const I here = I(first + (FLAT ? nw * DW : nw - i * SW));
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const auto rank = order_of(value[e][v]);
            const bool nan = value[e][v] != value[e][v];
            const bool better = line + kw == 0 || (rank > order[i][v]) | nan;
            best[i][v] = better ? value[e][v] : best[i][v];
            order[i][v] = better ? rank : order[i][v];
            where[i][v] = better ? here : where[i][v];
          }
        }
      }
    }
    if (!(meets(d0, DD, KD, D) && meets(h0, DH, KH, H) && (X > 1 || meets(w0, DW, KW, W)))) {
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          best[i][v] = lowest<T>();
          where[i][v] = FLAT ? I(-1) : I(0);
        }
      }
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;
    store_columns<X, V, RUN, EVEN>(out, best, to, s.w, OW, C, lanes);
    store_columns<X, V, RUN, EVEN>(indices, where, to, s.w, OW, C, lanes);
