/**
 * Capacities of buffers that a long run fills repeatedly. Tests make them small (TEST_HOLDFAST_SIZES), so that a short
 * run fills them too.
 */

interface BufferSizes {
  /** Scalars of a compiled step buffered on the device; a power of two. */
  ring: number;
  /** Scalars of a compiled step kept on the host; the latest ones. */
  history: number;
  /** Rows buffered before they are written to a run's step log. */
  stepRows: number;
}

const small = Number(process.env["TEST_HOLDFAST_SIZES"] ?? Number.NaN);

export const bufferSizes: BufferSizes =
  small > 0
    ? { ring: small, history: small, stepRows: small }
    : { ring: 256, history: 65_536, stepRows: 512 };
