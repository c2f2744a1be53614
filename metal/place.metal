    // Pooled values to their places, zero elsewhere; of several that name one place the last one wins,
    // or, with SUM, all are added. Every output is written once, by the thread that owns it.
    //   values, indices (B, OD, OH, OW, C), strays, size = (D, H, W)  ->  out (B, D, H, W, C)
    // One thread: V neighbouring channels of one tile of outputs, as large as the stride. Tile t begins
    // where window t begins, so the windows that cover a place of it are t, t - 1, ..., t - reach + 1.
    // Grid: (tiles along W * channel groups, tiles along D * tiles along H, B).
    const int D = size[0], H = size[1], W = size[2], C = indices_shape[4];
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3];
    const uint TD = uint(D + PD + SD - 1) / SD, TH = uint(H + PH + SH - 1) / SH;
    const uint TW = uint(W + PW + SW - 1) / SW, groups = uint(C + V - 1) / V;
    const uint3 at = thread_position_in_grid;
    if (at.x >= TW * groups || at.y >= TD * TH || at.z >= uint(indices_shape[0])) {
      return;
    }
    const int tw = int(at.x / groups), c = int(at.x % groups) * V;
    const int td = int(at.y / TH), th = int(at.y % TH);
    const int64_t plane = int64_t(at.z) * D * H * W, cells = int64_t(at.z) * OD * OH * OW;

    bool scan = false; // whether an index from outside its own window names a place of this tile
    if (STRAY) {
      const int64_t tile = (int64_t(at.z) * TD * TH + at.y) * (TW * groups) + at.x;
      scan = (strays[tile / 32] >> uint(tile % 32)) & 1u;
    }

    int64_t loaded = -1; // the cell that value and index were read from
    T value[V];
    INDEX index[V];
    for (int rd = 0; rd < SD; ++rd) {
      const int d = td * SD - PD + rd;
      if (d < 0 || d >= D) {
        continue;
      }
      for (int rh = 0; rh < SH; ++rh) {
        const int h = th * SH - PH + rh;
        if (h < 0 || h >= H) {
          continue;
        }
        for (int rw = 0; rw < SW; ++rw) {
          const int w = tw * SW - PW + rw;
          if (w < 0 || w >= W) {
            continue;
          }
          const int64_t place = (int64_t(d) * H + h) * W + w;
          ACC result[V];
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            result[v] = ACC(0);
          }
          if (scan) {
            for (int64_t cell = cells; cell < cells + int64_t(OD) * OH * OW; ++cell) {
              for (int v = 0; v < V && c + v < C; ++v) {
                if (INDEX(indices[cell * C + c + v]) == INDEX(place)) {
                  result[v] = ACC(values[cell * C + c + v]);
                }
              }
            }
          } else {
            // The windows that cover the place, in row-major order.
            for (int ad = (KD - 1) * DD / SD; ad >= 0; --ad) {
              const int od = td - ad, kd = tap_at(ad * SD + rd, KD, DD);
              if (kd < 0 || od < 0 || od >= OD) {
                continue;
              }
              for (int ah = (KH - 1) * DH / SH; ah >= 0; --ah) {
                const int oh = th - ah, kh = tap_at(ah * SH + rh, KH, DH);
                if (kh < 0 || oh < 0 || oh >= OH) {
                  continue;
                }
                for (int aw = (KW - 1) * DW / SW; aw >= 0; --aw) {
                  const int ow = tw - aw, kw = tap_at(aw * SW + rw, KW, DW);
                  if (kw < 0 || ow < 0 || ow >= OW) {
                    continue;
                  }
                  const int64_t cell = cells + (int64_t(od) * OH + oh) * OW + ow;
                  if (cell != loaded) {
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                      if (TAIL && c + v >= C) {
                        break;
                      }
                      value[v] = values[cell * C + c + v];
                      index[v] = INDEX(indices[cell * C + c + v]);
                    }
                    loaded = cell;
                  }
                  const INDEX wanted = FLAT ? INDEX(place) : INDEX((kd * KH + kh) * KW + kw);
                  #pragma unroll
                  for (int v = 0; v < V; ++v) {
                    if (TAIL && c + v >= C) {
                      break;
                    }
                    if (index[v] == wanted) {
                      result[v] = ACC(SUM ? result[v] + ACC(value[v]) : ACC(value[v]));
                    }
                  }
                }
              }
            }
          }
          const int64_t to = (plane + place) * C + c;
          #pragma unroll
          for (int v = 0; v < V; ++v) {
            if (TAIL && c + v >= C) {
              break;
            }
            out[to + v] = T(result[v]);
          }
        }
      }
    }
