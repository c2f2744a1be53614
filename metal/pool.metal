    // The maximum of every window and where it is. One thread: V neighbouring channels of one cell.
    //   x (B, D, H, W, C), size = (OD, OH, OW)  ->  out, indices (B, OD, OH, OW, C)
    // Grid: (OW * channel groups, OD * OH, B).
    const int D = x_shape[1], H = x_shape[2], W = x_shape[3], C = x_shape[4];
    const int OD = size[0], OH = size[1], OW = size[2];
    const uint groups = uint(C + V - 1) / V;
    const uint3 at = thread_position_in_grid;
    if (at.x >= OW * groups || at.y >= uint(OD) * OH || at.z >= uint(x_shape[0])) {
      return;
    }
    const int ow = int(at.x / groups), c = int(at.x % groups) * V;
    const int od = int(at.y) / OH, oh = int(at.y) % OH;
    const int64_t plane = int64_t(at.z) * D * H * W;

    T best[V];
    I where[V];
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      best[v] = lowest<T>();
      where[v] = FLAT ? I(-1) : I(0);
    }
    bool first = true; // no tap inside the plane seen yet
    for (int kd = 0; kd < KD; ++kd) {
      const int d = od * SD - PD + kd * DD;
      if (d < 0 || d >= D) {
        continue;
      }
      for (int kh = 0; kh < KH; ++kh) {
        const int h = oh * SH - PH + kh * DH;
        if (h < 0 || h >= H) {
          continue;
        }
        for (int kw = 0; kw < KW; ++kw) {
          const int w = ow * SW - PW + kw * DW;
          if (w < 0 || w >= W) {
            continue;
          }
          const int64_t place = (int64_t(d) * H + h) * W + w;
          const int64_t from = (plane + place) * C + c;
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            if (TAIL && c + v >= C) {
              break;
            }
            const T value = x[from + v];
            if (first || value > best[v] || value != value) { // the last NaN wins
              best[v] = value;
              where[v] = FLAT ? I(place) : I((kd * KH + kh) * KW + kw);
            }
          }
          first = false;
        }
      }
    }
    const int64_t to = ((int64_t(at.z) * OD * OH + at.y) * OW + ow) * C + c;
    #pragma unroll
    for (int v = 0; v < V; ++v) {
      if (TAIL && c + v >= C) {
        break;
      }
      out[to + v] = best[v];
      indices[to + v] = where[v];
    }
