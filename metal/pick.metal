    // The full array at the recorded places; 0 for an index that names no place and, with WINNERS, for
    // a cell whose place a later cell names as well.
    //   full (B, D, H, W, C), indices (B, OD, OH, OW, C), strays  ->  out (B, OD, OH, OW, C)
    // One thread: V neighbouring channels of one cell. Grid: (OW * channel groups, OD * OH, B).
    const int D = full_shape[1], H = full_shape[2], W = full_shape[3], C = full_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint TD = uint(D + PD + SD - 1) / SD, TH = uint(H + PH + SH - 1) / SH;
    const uint TW = uint(W + PW + SW - 1) / SW, groups = uint(C + V - 1) / V;
    const uint3 at = thread_position_in_grid;
    if (at.x >= OW * groups || at.y >= uint(OD) * OH || at.z >= uint(full_shape[0])) {
      return;
    }
    const int ow = int(at.x / groups), c = int(at.x % groups) * V;
    const int od = int(at.y) / OH, oh = int(at.y) % OH;
    const int64_t plane = int64_t(at.z) * D * H * W, cells = int64_t(at.z) * OD * OH * OW;
    const int64_t cell = cells + (int64_t(od) * OH + oh) * OW + ow;
    const bool shared = STRAY || (KD - 1) * DD >= SD || (KH - 1) * DH >= SH || (KW - 1) * DW >= SW;

    #pragma unroll
    for (int v = 0; v < V; ++v) {
      if (TAIL && c + v >= C) {
        break;
      }
      const INDEX index = INDEX(indices[cell * C + c + v]);
      Place p;
      int64_t place;
      bool found;
      if (FLAT) {
        found = index >= 0 && index < INDEX(D) * H * W;
        const INDEX inside = found ? index : INDEX(0);
        p = place_of(inside, H, W);
        place = inside;
      } else {
        found = index < KD * KH * KW;
        const int tap = found ? int(index) : 0;
        p.d = od * SD - PD + tap / (KH * KW) * DD;
        p.h = oh * SH - PH + tap / KW % KH * DH;
        p.w = ow * SW - PW + tap % KW * DW;
        found = found && p.d >= 0 && p.d < D && p.h >= 0 && p.h < H && p.w >= 0 && p.w < W;
        place = (int64_t(p.d) * H + p.h) * W + p.w;
      }
      if (WINNERS && shared && found) {
        const int td = (p.d + PD) / SD, th = (p.h + PH) / SH, tw = (p.w + PW) / SW;
        bool scan = false;
        if (STRAY) {
          const int64_t tile =
              ((int64_t(at.z) * TD + td) * TH + th) * (TW * groups) + tw * groups + at.x % groups;
          scan = (strays[tile / 32] >> uint(tile % 32)) & 1u;
        }
        if (scan) {
          const int64_t end = cells + int64_t(OD) * OH * OW;
          for (int64_t later = cell + 1; later < end && found; ++later) {
            found = INDEX(indices[later * C + c + v]) != index;
          }
        } else {
          // Later windows that cover the place, the last one first.
          for (int ad = 0; ad <= (KD - 1) * DD / SD && found; ++ad) {
            const int ld = td - ad, kd = tap_at(p.d + PD - ld * SD, KD, DD);
            if (kd < 0 || ld < 0 || ld >= OD) {
              continue;
            }
            for (int ah = 0; ah <= (KH - 1) * DH / SH && found; ++ah) {
              const int lh = th - ah, kh = tap_at(p.h + PH - lh * SH, KH, DH);
              if (kh < 0 || lh < 0 || lh >= OH) {
                continue;
              }
              for (int aw = 0; aw <= (KW - 1) * DW / SW && found; ++aw) {
                const int lw = tw - aw, kw = tap_at(p.w + PW - lw * SW, KW, DW);
                if (kw < 0 || lw < 0 || lw >= OW) {
                  continue;
                }
                const int64_t later = cells + (int64_t(ld) * OH + lh) * OW + lw;
                const INDEX wanted = FLAT ? index : INDEX((kd * KH + kh) * KW + kw);
                found = later <= cell || INDEX(indices[later * C + c + v]) != wanted;
              }
            }
          }
        }
      }
      out[cell * C + c + v] = found ? full[(plane + place) * C + c + v] : T(0);
    }
