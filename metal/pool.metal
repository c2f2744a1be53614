    // The maximum of every window and where it is: the first of equals, but the last NaN.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of X neighbouring windows. Grid: (OW / X * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, OD, OH, OW, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS d0 = s.d * SD - PD, h0 = s.h * SH - PH, w0 = s.w * SW - PW;
    const OFFSET plane = OFFSET(at.z) * D * H * W, all = OFFSET(x_shape[0]) * D * H * W * C;
    // Elements of a row, from the first window to the last, in parts of equal size that fit into registers.
    const int ROW = X > 1 ? (X - 1) * SW + KW : KW, PARTS = X > 1 ? 1 : (KW + 7) / 8, COUNT = (ROW + PARTS - 1) / PARTS;
    // Of windows of few elements every element has its instructions; of others, those of a part of a row are repeated.
    const int LINES = KD * KH * PARTS, UNROLLED = KD * KH * KW > 9 ? 1 : LINES;

    T best[X][V];
    typename Order<T>::type order[X][V];
    WHERE where[X][V];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      // No number is less than the least one: the first element inside has it, or another one is better.
      const int kd = nearest_inside<AXIS>(0, d0, DD, D, PD), kh = nearest_inside<AXIS>(0, h0, DH, H, PH);
      const int kw = nearest_inside<AXIS>(0, w0 + i * SW, DW, W, PW);
      const WHERE start = FLAT ? WHERE((INDEX(d0 + AXIS(kd) * DD) * H + INDEX(h0 + AXIS(kh) * DH)) * W + INDEX(w0 + i * SW + AXIS(kw) * DW))
                               : WHERE((kd * KH + kh) * KW + kw);
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        best[i][v] = lowest<T>();
        order[i][v] = order_of(best[i][v]);
        where[i][v] = start;
      }
    }
    #pragma unroll(UNROLLED)
    for (int line = 0; line < LINES; ++line) {
      // A window that stands over the edge looks again at its outermost element, which changes nothing.
      const int part = line % PARTS * COUNT, ad = line / PARTS / KH, ah = line / PARTS % KH;
      const int kd = INSIDE ? ad : nearest_inside<AXIS>(ad, d0, DD, D, PD);
      const int kh = INSIDE ? ah : nearest_inside<AXIS>(ah, h0, DH, H, PH);
      const AXIS d = DD > 1 ? AXIS(clamped(d0 + AXIS(kd) * DD, D)) : d0 + kd;
      const AXIS h = DH > 1 ? AXIS(clamped(h0 + AXIS(kh) * DH, H)) : h0 + kh;
      const INDEX row = (INDEX(d) * H + INDEX(h)) * W;
      const WHERE first = FLAT ? WHERE(row + INDEX(w0)) : WHERE((kd * KH + kh) * KW);
      const OFFSET from = (plane + OFFSET(row)) * C + s.c;
      T value[COUNT][V];
      if (DW == 1 && PARTS == 1) {
        load_columns<COUNT, V, RUN, INSIDE>(value, x, from, w0, W, C, lanes, all);
        outermost_again<COUNT, V, PW, RUN && !INSIDE>(value, w0, W);
      } else {
        #pragma unroll
        for (int e = 0; e < COUNT; ++e) { // X is 1
          const int k = part + e < KW ? part + e : KW - 1;
          const int w = clamped(w0 + AXIS(nearest_inside<AXIS>(k, w0, DW, W, PW)) * DW, W);
          load_columns<1, V, RUN, true>(value + e, x, from, w, W, C, lanes, all);
        }
      }
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        #pragma unroll
        for (int e = i * SW; e < (X > 1 ? i * SW + KW : COUNT); ++e) {
          const int k = X > 1 || part + e < KW ? part + e : KW - 1;
          const int kw = INSIDE ? k : nearest_inside<AXIS>(k, w0, DW, W, PW);
          const WHERE here = WHERE(first + (FLAT ? WHERE(kw) * DW : WHERE(kw - i * SW)));
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const auto rank = order_of(value[e][v]);
            const bool nan = value[e][v] != value[e][v];
            const auto held = Order<T>::same ? order_of(best[i][v]) : order[i][v];
            const bool better = (UNROLLED > 1 && line == 0 && e == i * SW) || (rank > held) | nan;
            best[i][v] = better ? value[e][v] : best[i][v];
            order[i][v] = better ? rank : order[i][v];
            where[i][v] = better ? here : where[i][v];
          }
        }
      }
    }
    const bool any = meets<AXIS>(d0, DD, KD, D) && meets<AXIS>(h0, DH, KH, H) && (X > 1 || meets<AXIS>(w0, DW, KW, W));
    I indices_of[X][V];
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        best[i][v] = any ? best[i][v] : lowest<T>();
        indices_of[i][v] = any ? I(where[i][v]) : FLAT ? I(-1) : I(0);
      }
    }
    const OFFSET to = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;
    store_columns<X, V, RUN, EVEN>(out, best, to, s.w, OW, C, lanes);
    store_columns<X, V, RUN, EVEN>(indices, indices_of, to, s.w, OW, C, lanes);
