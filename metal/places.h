// Places and indices: the arithmetic that several kernels share.

struct Place {
  int d, h, w;
};

// The place that a flat index names in a plane of height H and width W.
inline Place place_of(int64_t flat, int H, int W) {
  Place p;
  if (flat <= 0x7fffffff) { // 64-bit division is slow on a GPU
    const int rest = int(flat) / W;
    p.w = int(flat) - rest * W;
    p.d = rest / H;
    p.h = rest - p.d * H;
  } else {
    const int64_t rest = flat / W;
    p.w = int(flat - rest * W);
    p.d = int(rest / H);
    p.h = int(rest - int64_t(p.d) * H);
  }
  return p;
}

// The tap whose place lies `ahead` of the start of a window of K taps DIL apart, or -1.
inline int tap_at(int ahead, int K, int DIL) {
  return ahead >= 0 && ahead % DIL == 0 && ahead / DIL < K ? ahead / DIL : -1;
}
