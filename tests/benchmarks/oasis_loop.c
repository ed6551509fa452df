/* The OASIS step as a plain C loop, the floor that the compiled kernel is held against.
 *
 * Rows are CSR: sorted int32 ids, float32 values, int64 row pointers. W is row-major dim x dim.
 * While one row of W is read, the next row's entries are prefetched for writing; the difference
 * clicked - skipped of the next event is merged before the current one is applied.
 * Build: cc -O3 -march=native -ffast-math -shared -fPIC
 */
#include <stddef.h>
#include <stdint.h>

#define MAX_ROW 8192

typedef struct {
  const int32_t *ids;
  const float *values;
  const int64_t *rows;
} csr;

typedef struct {
  int32_t ids[MAX_ROW];
  float values[MAX_ROW];
  float norm2;
  int count;
} difference;

/* out = clicked[t] - skipped[t], both sorted by id. */
static void subtract(const csr *clicked, const csr *skipped, int64_t t, difference *out) {
  int64_t i = clicked->rows[t], i_end = clicked->rows[t + 1];
  int64_t j = skipped->rows[t], j_end = skipped->rows[t + 1];
  int k = 0;
  float norm2 = 0;
  while (i < i_end || j < j_end) {
    float value;
    int32_t id;
    if (j >= j_end || (i < i_end && clicked->ids[i] < skipped->ids[j])) {
      id = clicked->ids[i];
      value = clicked->values[i++];
    } else if (i >= i_end || skipped->ids[j] < clicked->ids[i]) {
      id = skipped->ids[j];
      value = -skipped->values[j++];
    } else {
      id = clicked->ids[i];
      value = clicked->values[i++] - skipped->values[j++];
    }
    out->ids[k] = id;
    out->values[k++] = value;
    norm2 += value * value;
  }
  out->norm2 = norm2;
  out->count = k;
}

/* Apply n steps to W in order; returns how many violated the margin. */
int64_t oasis_loop(float *W, int64_t dim, int64_t n, const int32_t *q_ids, const float *q_values,
                   const int64_t *q_rows, const int32_t *c_ids, const float *c_values,
                   const int64_t *c_rows, const int32_t *s_ids, const float *s_values,
                   const int64_t *s_rows, float C) {
  csr clicked = {c_ids, c_values, c_rows}, skipped = {s_ids, s_values, s_rows};
  static difference buffers[2];
  int64_t updated = 0;
  if (n > 0) subtract(&clicked, &skipped, 0, &buffers[0]);
  for (int64_t t = 0; t < n; t++) {
    const difference *e = &buffers[t & 1];
    if (t + 1 < n) subtract(&clicked, &skipped, t + 1, &buffers[(t + 1) & 1]);
    int64_t begin = q_rows[t], end = q_rows[t + 1];
    int k = e->count;
    double margin = 0;
    float q_norm2 = 0;
    for (int64_t i = begin; i < end; i++) {
      const float *row = W + (int64_t)q_ids[i] * dim;
      if (i + 1 < end) {
        const float *next = W + (int64_t)q_ids[i + 1] * dim;
        for (int j = 0; j < k; j++) __builtin_prefetch(next + e->ids[j], 1, 1);
      }
      float a0 = 0, a1 = 0, a2 = 0, a3 = 0;
      int j = 0;
      for (; j + 3 < k; j += 4) {
        a0 += row[e->ids[j]] * e->values[j];
        a1 += row[e->ids[j + 1]] * e->values[j + 1];
        a2 += row[e->ids[j + 2]] * e->values[j + 2];
        a3 += row[e->ids[j + 3]] * e->values[j + 3];
      }
      for (; j < k; j++) a0 += row[e->ids[j]] * e->values[j];
      margin += q_values[i] * ((a0 + a1) + (a2 + a3));
      q_norm2 += q_values[i] * q_values[i];
    }
    float loss = 1.0f - (float)margin, denominator = q_norm2 * e->norm2;
    if (loss <= 0 || denominator <= 0) continue;
    float tau = loss / denominator;
    if (tau > C) tau = C;
    updated++;
    for (int64_t i = begin; i < end; i++) {
      float *row = W + (int64_t)q_ids[i] * dim;
      float scale = tau * q_values[i];
      for (int j = 0; j < k; j++) row[e->ids[j]] += scale * e->values[j];
    }
  }
  return updated;
}
