/* The checksum of zlib.crc32: CRC-32 with the polynomial 0x04C11DB7, reflected. */

#include "hotpath.h"

/* Eight bytes at a time, by tables, which are filled once and then only read. */

static uint32_t table[8][256];

static void fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
        table[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (uint32_t byte = 0; byte < 256; byte++)
            table[row][byte] = table[0][table[row - 1][byte] & 255] ^ (table[row - 1][byte] >> 8);
}

static uint32_t by_table(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = table[7][low & 255] ^ table[6][(low >> 8) & 255] ^ table[5][(low >> 16) & 255] ^ table[4][low >> 24] ^
              table[3][high & 255] ^ table[2][(high >> 8) & 255] ^ table[1][(high >> 16) & 255] ^ table[0][high >> 24];
    }
    for (; size; data++, size--)
        crc = table[0][(crc ^ *data) & 255] ^ (crc >> 8);
    return crc;
}

/* Older compilers do not know how to ask for the instructions. */
#if defined __x86_64__ && ((defined __clang__ && __clang_major__ >= 6) || (!defined __clang__ && defined __GNUC__ && __GNUC__ >= 6))

/* By carry-less multiplication, as in Intel's paper "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction" (2009). In a process that does other things the tables, of 8 KiB, are seldom in the nearest cache.
 *
 * The constants are x^n modulo the polynomial, reflected and shifted by one: n is 32 more and 32 less than the number of
 * bits that are folded over. */

#include <immintrin.h>

#define FOLDED __attribute__((target("pclmul,sse4.1")))
#define FOLD_4 _mm_set_epi64x(0x1c6e41596, 0x154442bd4) /* over 512 bits */
#define FOLD_1 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0) /* over 128 */
#define FOLD_64 _mm_set_epi64x(0, 0x163cd6124)
#define REDUCE _mm_set_epi64x(0x1f7011641, 0x1db710641) /* x^64 divided by the polynomial, and the polynomial itself */

FOLDED static __m128i load(const unsigned char *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

FOLDED static __m128i fold(__m128i sum, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00), high = _mm_clmulepi64_si128(sum, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* At least 64 bytes, in a multiple of 16. */
FOLDED static uint32_t by_folding(uint32_t crc, const unsigned char *data, size_t size)
{
    const __m128i even = _mm_set_epi32(0, -1, 0, -1);
    __m128i sums[4];
    for (int lane = 0; lane < 4; lane++)
        sums[lane] = load(data + 16 * lane);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int lane = 0; lane < 4; lane++)
            sums[lane] = fold(sums[lane], FOLD_4, load(data + 16 * lane));
    __m128i sum = sums[0];
    for (int lane = 1; lane < 4; lane++)
        sum = fold(sum, FOLD_1, sums[lane]);
    for (; size; data += 16, size -= 16)
        sum = fold(sum, FOLD_1, load(data));
    /* From 128 bits to 64, to 32, and the remainder by Barrett's reduction. */
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, FOLD_1, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, even), FOLD_64, 0x00));
    __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, even), REDUCE, 0x10), even);
    sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(quotient, REDUCE, 0x00));
    return (uint32_t)_mm_extract_epi32(sum, 1);
}

static int can_fold(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#else

static uint32_t by_folding(uint32_t crc, const unsigned char *data, size_t size)
{
    return by_table(crc, data, size);
}

static int can_fold(void)
{
    return 0;
}

#endif

static int folds;

void prepare_checksum(void)
{
    fill_table();
    folds = can_fold();
}

uint32_t checksum_of(const unsigned char *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    if (folds && size >= 64) {
        size_t folded = size & ~(size_t)15;
        crc = by_folding(crc, data, folded);
        data += folded;
        size -= folded;
    }
    return ~by_table(crc, data, size);
}
