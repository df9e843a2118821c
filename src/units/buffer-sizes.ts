/**
 * How much the buffers hold that a long run fills again and again. Tests make them small (TEST_HOLDFAST_SIZES), so that a run
 * of a few steps fills them too.
 */

interface BufferSizes {
  /** Single numbers of a compiled step that wait on the device; a power of two. */
  ring: number;
  /** Single numbers of a compiled step that are kept on the host, the latest ones. */
  history: number;
  /** Rows that wait to be written to a run's step log. */
  stepRows: number;
}

const small = Number(process.env["TEST_HOLDFAST_SIZES"] ?? Number.NaN);

export const bufferSizes: BufferSizes =
  small > 0
    ? { ring: small, history: small, stepRows: small }
    : { ring: 256, history: 65_536, stepRows: 512 };
