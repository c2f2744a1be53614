    // Computes the maximum of every window and its index: the first of equal maxima, or the last NaN.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of X neighbouring windows of Y neighbouring rows.
    // Grid: (OW / X * channel groups, OD * OH / Y, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = ONE ? V : x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, OD, (OH - 1) / Y + 1, OW, C, x_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS d0 = s.d * SD - PD, h0 = s.h * Y * SH - PH, w0 = s.w * SW - PW;
    const OFFSET plane = OFFSET(at.z) * D * H * W, all = OFFSET(x_shape[0]) * D * H * W * C;
    // The elements of a row, from the first to the last window, in parts of equal size that fit into registers.
    const int ROW = X > 1 ? (X - 1) * SW + KW : KW, PARTS = X > 1 ? 1 : (KW + 7) / 8, COUNT = (ROW + PARTS - 1) / PARTS;
    // The loop over the rows is unrolled only for small windows, to limit the code size.
    const int ROWS = (Y - 1) * SH + KH, LINES = KD * ROWS * PARTS, UNROLLED = KD * KH * KW > 9 ? 1 : LINES;

    // Window offsets in `where` are relative to the first of the Y windows.
    T best[Y * X][V];
    typename Order<T>::type order[Y * X][V];
    WHERE where[Y * X][V];
    #pragma unroll
    for (int j = 0; j < Y * X; ++j) {
      // Start with the lowest value at the first element inside: any larger element replaces it.
      const AXIS top = h0 + j / X * SH, left = w0 + j % X * SW;
      const int kd = nearest_inside<AXIS>(0, d0, DD, D, PD), kh = nearest_inside<AXIS>(0, top, DH, H, PH);
      const int kw = nearest_inside<AXIS>(0, left, DW, W, PW);
      const INDEX row = (INDEX(d0 + AXIS(kd) * DD) * H + INDEX(top + AXIS(kh) * DH)) * W;
      const WHERE start =
          FLAT ? WHERE(row + INDEX(left + AXIS(kw) * DW)) : WHERE((kd * KH + j / X * SH + kh) * KW + kw);
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        best[j][v] = lowest<T>();
        order[j][v] = order_of(best[j][v]);
        where[j][v] = start;
      }
    }
    #pragma unroll(UNROLLED)
    for (int line = 0; line < LINES; ++line) {
      // An element outside the plane is replaced by the nearest one inside; reading that twice changes nothing.
      const int part = line % PARTS * COUNT, ad = line / PARTS / ROWS, ah = line / PARTS % ROWS;
      const int kd = INSIDE ? ad : nearest_inside<AXIS>(ad, d0, DD, D, PD);
      const int kh = INSIDE || Y > 1 ? ah : nearest_inside<AXIS>(ah, h0, DH, H, PH);
      const AXIS d = DD > 1 ? AXIS(clamped(d0 + AXIS(kd) * DD, D)) : d0 + kd;
      const AXIS h = DH > 1 ? AXIS(clamped(h0 + AXIS(kh) * DH, H)) : h0 + kh;
      if (Y > 1 && !within(h, H)) {
        continue;
      }
      const INDEX row = (INDEX(d) * H + INDEX(h)) * W;
      const WHERE first = FLAT ? WHERE(row + INDEX(w0)) : WHERE((kd * KH + kh) * KW);
      const OFFSET from = (plane + OFFSET(row)) * C + s.c;
      T value[COUNT][V];
      if (DW == 1 && PARTS == 1) {
        load_columns<COUNT, V, X, INSIDE>(value, x, from, w0, W, C, lanes, all);
        outermost_again<COUNT, V, PW, (X > 1 && !INSIDE)>(value, w0, W);
      } else {
        #pragma unroll
        for (int e = 0; e < COUNT; ++e) { // X is 1
          const int k = part + e < KW ? part + e : KW - 1;
          const int w = clamped(w0 + AXIS(nearest_inside<AXIS>(k, w0, DW, W, PW)) * DW, W);
          load_columns<1, V, 1, true>(value + e, x, from, w, W, C, lanes, all);
        }
      }
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        // With Y > 1, the maximum of a row is computed once for all windows that contain the row.
        T row_best[V];
        typename Order<T>::type row_order[V];
        WHERE row_where[V];
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          row_best[v] = Y > 1 ? value[i * SW][v] : best[i][v];
          row_order[v] = Y > 1 ? order_of(row_best[v]) : order[i][v];
          row_where[v] = where[i][v];
        }
        #pragma unroll
        for (int n = 0; n < (X > 1 ? KW : COUNT); ++n) {
          const int e = i * SW + n;
          const int k = X > 1 || part + e < KW ? part + e : KW - 1;
          const int kw = INSIDE ? k : nearest_inside<AXIS>(k, w0, DW, W, PW);
          const WHERE here = WHERE(first + (FLAT ? WHERE(kw) * DW : WHERE(kw - i * SW)));
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            const auto rank = order_of(value[e][v]);
            const bool nan = value[e][v] != value[e][v];
            const auto held = Order<T>::same ? order_of(row_best[v]) : row_order[v];
            const bool start = n == 0 && (Y > 1 || (UNROLLED > 1 && line == 0));
            const bool better = start || (rank > held) | nan;
            row_best[v] = better ? value[e][v] : row_best[v];
            row_order[v] = better ? rank : row_order[v];
            row_where[v] = better ? here : row_where[v];
          }
        }
        #pragma unroll
        for (int y = 0; y < Y; ++y) {
          const int j = y * X + i;
          if (Y == 1 || within(kh - y * SH, KH)) { // the same for all threads
            #pragma unroll
            for (int v = 0; v < V; ++v) {
              const auto held = Order<T>::same ? order_of(best[j][v]) : order[j][v];
              const auto rank = Order<T>::same ? order_of(row_best[v]) : row_order[v];
              const bool better = Y == 1 || (rank > held) | (row_best[v] != row_best[v]);
              best[j][v] = better ? row_best[v] : best[j][v];
              order[j][v] = better ? row_order[v] : order[j][v];
              where[j][v] = better ? row_where[v] : where[j][v];
            }
          }
        }
      }
    }
    #pragma unroll
    for (int y = 0; y < Y; ++y) {
      const bool any = meets<AXIS>(d0, DD, KD, D) && meets<AXIS>(h0, DH, KH, H) && (X > 1 || meets<AXIS>(w0, DW, KW, W));
      I indices_of[X][V];
      #pragma unroll
      for (int i = 0; i < X; ++i) {
        #pragma unroll
        for (int v = 0; v < V; ++v) {
          const WHERE found = where[y * X + i][v] - WHERE(FLAT ? 0 : y * SH * KW);
          best[y * X + i][v] = any ? best[y * X + i][v] : lowest<T>();
          indices_of[i][v] = any ? I(found) : FLAT ? I(-1) : I(0);
        }
      }
      const AXIS oh = s.h * Y + y;
      if (Y == 1 || oh < OH) {
        const OFFSET to = ((OFFSET(at.z) * OD + OFFSET(s.d)) * OH + OFFSET(oh)) * OW * C + s.c;
        store_columns<X, V, X, EVEN>(out, best + y * X, to, s.w, OW, C, lanes);
        store_indices<VALUES, X, V, X, EVEN>(indices, indices_of, to, s.w, OW, C, lanes);
      }
    }
