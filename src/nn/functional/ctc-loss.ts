/** The CTC loss: the negative log probability of a target sequence, summed over all of its alignments with the input. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { arange, stack, Tensor, tensor, where } from "../../tensor/index.js";
import type { LossOptions } from "./losses.js";
import { reduceLoss } from "./reduce-loss.js";

/** Options of `ctcLoss`. */
export interface CTCLossOptions extends LossOptions {
  /** The class that separates labels. Default: 0. */
  readonly blank?: number;
  /** A loss that is infinite, because the target is too long for its input, counts as 0. Default: false. */
  readonly zeroInfinity?: boolean;
}

export const ctcLossOptionNames: OptionNames<CTCLossOptions> = {
  blank: true,
  zeroInfinity: true,
  reduction: true,
};

/** Stands for log(0): sums of such numbers are finite, and their exponentials 0. */
const logOfZero = -1e30;

/**
 * The CTC loss of log probabilities [T, N, C], for targets [N, S] of labels and the lengths of inputs and targets, [N]: tensors of integers, or lists. The mean is over
 * the batch, of each loss divided by the length of its target. The loss is a dynamic programme of a few ops for each of the T steps.
 *
 * @example
 * ```ts
 * import { device, nn, tensor, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const logProbs = zeros([2, 1, 2]).logSoftmax(-1);
 * const targets = tensor([[1]], { dtype: "i32" });
 * console.log(nn.functional.ctcLoss(logProbs, targets, [2], [1]).item().toFixed(4)); // → 0.2877
 * cpu.close();
 * ```
 */
export function ctcLoss(
  logProbs: Tensor,
  targets: Tensor,
  inputLengths: Tensor | readonly number[],
  targetLengths: Tensor | readonly number[],
  options: CTCLossOptions = {},
): Tensor {
  const {
    blank = 0,
    reduction = "mean",
    zeroInfinity = false,
  } = checkOptions("ctcLoss", options, ctcLossOptionNames);
  const [steps = 0, batch = 0, classes = 0] = logProbs.shape;
  const [rows, labels = 0] = targets.shape;
  if (logProbs.ndim !== 3 || targets.ndim !== 2 || rows !== batch || steps === 0) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `ctcLoss: log probabilities ${formatShape(logProbs.shape)} and targets ${formatShape(targets.shape)}. Pass [T, N, C] with T of 1 or ` +
        "more, and [N, S].",
    );
  }
  if (!(Number.isSafeInteger(blank) && blank >= 0 && blank < classes)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `ctcLoss: the blank is ${blank}; it must be a class from 0 to ${classes - 1}.`,
      {
        numbers: { blank, classes },
      },
    );
  }
  const [inputEnds, targetEnds] = [inputLengths, targetLengths].map((lengths) =>
    lengths instanceof Tensor ? lengths : tensor(lengths, { dtype: "i32", device: logProbs.device }),
  ) as [Tensor, Tensor];
  const exact = logProbs.dtype === "f64" ? logProbs : logProbs.to("f32");
  const states = 2 * labels + 1;
  // A blank before, between and after the labels: [N, 2S + 1].
  const known = where(targets.ge(0).logicalAnd(targets.lt(classes)), targets, blank);
  const blanks = known.mul(0).add(blank);
  const sequence = stack([blanks, known], 2).flatten(1).pad([0, 1], blank);
  const canSkip = sequence.ne(blank).logicalAnd(shift(sequence, 2, -1).ne(sequence)); // from the label before, if it differs
  const emitted = exact.gather(2, sequence.unsqueeze(0).expand([steps, batch, states])); // [T, N, 2S + 1]
  const position = arange(0, states, 1, { device: logProbs.device });
  let alpha = where(position.lt(2), emitted.select(0, 0), logOfZero);
  for (let step = 1; step < steps; step++) {
    const skipped = where(canSkip, shift(alpha, 2, logOfZero), logOfZero);
    const before = stack([alpha, shift(alpha, 1, logOfZero), skipped]).logsumexp(0);
    alpha = where(inputEnds.gt(step).unsqueeze(1), before.add(emitted.select(0, step)), alpha);
  }
  const ends = targetEnds.mul(2).unsqueeze(1);
  const isEnd = position.eq(ends).logicalOr(position.eq(ends.sub(1)));
  const losses = where(isEnd, alpha, logOfZero).logsumexp(1).neg();
  const isPossible = losses.lt(-logOfZero / 2);
  const limited = where(isPossible, losses, zeroInfinity ? 0 : Number.POSITIVE_INFINITY);
  if (reduction !== "mean") return reduceLoss(limited, reduction);
  return limited.div(targetEnds.clamp(1)).mean();
}

/** Moves the columns of a matrix to the right; the first ones get a value. */
function shift(x: Tensor, by: number, value: number): Tensor {
  return x.pad([by, -by], value);
}
