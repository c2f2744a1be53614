    // Marks the channel groups of an image that have an index outside its own window. For these groups `place` and `pick`
    // cannot find the pooled values of a position by reading the windows around it, and use the bits of `outside_winners`.
    //   indices (B, OD, OH, OW, C), size = (D, H, W)  ->  outside_window (B, channel groups), initialised to 0
    // One thread: V neighbouring channels of X neighbouring pooled values. Grid: (OW / X * channel groups, OD * OH, B).
    const int D = size[0], H = size[1], W = size[2], C = ONE ? V : indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint3 at = thread_position_in_grid;
    const WorkItem<AXIS> s = work_item_of<AXIS, V, X, ONE, PLANAR>(at, OD, OH, OW, C, indices_shape[0]);
    if (s.beyond) {
      return;
    }
    const int lanes = TAIL && C - s.c < V ? C - s.c : V;
    const AXIS d0 = s.d * SD - PD, h0 = s.h * SH - PH, w0 = s.w * SW - PW;
    const INDEX start = (INDEX(d0) * H + INDEX(h0)) * W + INDEX(w0), elements = INDEX(D) * H * W;
    const OFFSET row = (OFFSET(at.z) * OD * OH + at.y) * OW * C + s.c;

    INDEX index[X][V];
    load_columns<X, V, X, EVEN>(index, indices, row, s.w, OW, C, lanes, OFFSET(indices_shape[0]) * OD * OH * OW * C);
    bool any = false;
    #pragma unroll
    for (int i = 0; i < X; ++i) {
      // The range of the window's columns inside the axis, relative to w0.
      const AXIS left = w0 + i * SW, span = AXIS(KW - 1) * DW + 1;
      const INDEX least = INDEX(left < 0 ? -w0 : AXIS(i * SW)), end = INDEX(left + span <= W ? i * SW + span : W - w0);
      #pragma unroll
      for (int v = 0; v < V; ++v) {
        const bool named = index[i][v] >= 0 && index[i][v] < elements;
        const INDEX known = named ? index[i][v] : INDEX(0);
        bool in_window = false;
        #pragma unroll
        for (int kd = 0; kd < KD; ++kd) {
          #pragma unroll
          for (int kh = 0; kh < KH; ++kh) {
            const bool inside = INSIDE || (within(d0 + AXIS(kd) * DD, D) && within(h0 + AXIS(kh) * DH, H));
            const INDEX ahead = known - (start + least + (INDEX(kd) * DD * H + INDEX(kh) * DH) * W);
            const bool column = ahead >= 0 && ahead < (inside ? end - least : INDEX(0));
            in_window |= column & (DW == 1 || (ahead + least - i * SW) % DW == 0);
          }
        }
        any |= named & !in_window & (EVEN || s.w + i < OW) & (v < lanes);
      }
    }
    if (any) {
      set_bits(outside_window + (OFFSET(at.z) * ((C + V - 1) / V) + s.group), 1u);
    }
