/** Sequences of different lengths as one padded tensor, and back: `nn.utils.rnn`. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import { formatShape, isSameShape } from "../ops/index.js";
import { stack, type Tensor } from "../tensor/index.js";

/** Options of `padSequence`. */
export interface PadSequenceOptions {
  /** The result is [batch, steps, …], and not [steps, batch, …]. Default: false. */
  readonly batchFirst?: boolean;
  /** The value of the padding. Default: 0. */
  readonly paddingValue?: number;
}

const padSequenceOptionNames: OptionNames<PadSequenceOptions> = { batchFirst: true, paddingValue: true };

/**
 * Sequences [steps, …] of different lengths as one tensor [longest, batch, …], padded at their ends. For recurrent layers, pass the option
 * `lengths` too.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sequences = [tensor([1, 2, 3]), tensor([4])];
 * console.log(nn.utils.rnn.padSequence(sequences, { batchFirst: true }).tolist()); // → [ [ 1, 2, 3 ], [ 4, 0, 0 ] ]
 * cpu.close();
 * ```
 */
export function padSequence(sequences: Iterable<Tensor>, options: PadSequenceOptions = {}): Tensor {
  const { batchFirst = false, paddingValue = 0 } = checkOptions(
    "nn.utils.rnn.padSequence",
    options,
    padSequenceOptionNames,
  );
  const list = [...sequences];
  const rest = list[0]?.shape.slice(1) ?? [];
  const odd = list.find(({ ndim, shape }) => ndim === 0 || !isSameShape(shape.slice(1), rest));
  if (list.length === 0 || odd) {
    throw new HoldfastError(
      "BAD_SHAPE",
      odd
        ? `padSequence: a sequence is ${formatShape(odd.shape)}; all must be [${["steps", ...rest].join(", ")}].`
        : "padSequence got no sequences. Pass one or more.",
    );
  }
  const longest = Math.max(...list.map(({ shape }) => shape[0] ?? 0));
  const padded = list.map((x) => {
    const missing = longest - (x.shape[0] ?? 0);
    return missing === 0 ? x : x.pad([...rest.flatMap(() => [0, 0]), 0, missing], paddingValue);
  });
  return stack(padded, batchFirst ? 0 : 1);
}

/**
 * The sequences of a padded tensor, without their padding. Lengths in a tensor are read back, so a compiled step needs a list.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const padded = tensor([[1, 2, 3], [4, 0, 0]]);
 * const sequences = nn.utils.rnn.unpadSequence(padded, [3, 1], { batchFirst: true });
 * console.log(sequences.map((x) => x.tolist())); // → [ [ 1, 2, 3 ], [ 4 ] ]
 * cpu.close();
 * ```
 */
export function unpadSequence(
  padded: Tensor,
  lengths: Tensor | readonly number[],
  options: Pick<PadSequenceOptions, "batchFirst"> = {},
): Tensor[] {
  const { batchFirst = false } = checkOptions("nn.utils.rnn.unpadSequence", options, { batchFirst: true });
  const counts: readonly number[] = "dtype" in lengths ? [...lengths.dataSync()] : lengths;
  const [first = 0, second = 0] = padded.shape;
  const [batch, steps] = batchFirst ? [first, second] : [second, first];
  const fits = counts.every((length) => Number.isSafeInteger(length) && length >= 0 && length <= steps);
  if (padded.ndim < 2 || counts.length !== batch || !fits) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `unpadSequence: lengths ${formatShape(counts)} for ${formatShape(padded.shape)}. Pass a whole number from 0 to ${steps} for each of ` +
        `${batch} sequences.`,
    );
  }
  return counts.map((length, index) => padded.select(batchFirst ? 0 : 1, index).narrow(0, 0, length));
}
