// Places and indices: the arithmetic that several kernels share.

struct Place {
  int d, h, w;
};

// The place that a flat index names in a plane of height H and width W. A plane of less than 2^31 places is
// numbered in 32 bits, because division in 64 is slow on a GPU.
template <typename INDEX> inline Place place_of(INDEX flat, int H, int W) {
  const INDEX rest = flat / W;
  Place p;
  p.w = int(flat - rest * W);
  p.d = int(rest / H);
  p.h = int(rest - INDEX(p.d) * H);
  return p;
}

// The tap whose place lies `ahead` of the start of a window of K taps DIL apart, or -1.
inline int tap_at(int ahead, int K, int DIL) {
  return ahead >= 0 && ahead % DIL == 0 && ahead / DIL < K ? ahead / DIL : -1;
}
