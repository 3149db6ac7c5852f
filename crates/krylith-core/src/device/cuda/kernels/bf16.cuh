// Numbers in bf16: f32 without the lower half of its bits. They are stored, and widened when loaded.

struct bf16 {
    unsigned short bits;

    bf16() = default;
    // Rounds a finite number to the nearest, ties to even.
    __device__ __forceinline__ explicit bf16(float v) {
        const unsigned b = __float_as_uint(v);
        bits = (unsigned short)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
    }
    __device__ __forceinline__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
static_assert(sizeof(bf16) == 2, "two bytes");

__device__ __forceinline__ bf16 of_bits(unsigned bits) {
    bf16 v;
    v.bits = (unsigned short)bits;
    return v;
}
__device__ __forceinline__ bf16 __ldg(const bf16* at) { return of_bits(__ldg(&at->bits)); }
__device__ __forceinline__ bf16 __ldcs(const bf16* at) { return of_bits(__ldcs(&at->bits)); }
