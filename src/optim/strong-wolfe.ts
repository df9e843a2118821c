/** A line search for the strong Wolfe conditions: enough decrease, and a derivative that is small enough. */

/** A point on the line: step size, loss, gradient, and the derivative along the line. */
export interface LinePoint {
  readonly t: number;
  readonly loss: number;
  readonly gradient: Float64Array;
  readonly slope: number;
}

export interface LineSearchInputs {
  /** The start: t is 0. */
  readonly start: LinePoint;
  readonly firstStep: number;
  /** The largest element of the direction: ends the search when the interval gets too small. */
  readonly directionSize: number;
  readonly toleranceChange: number;
  evaluate(t: number): LinePoint;
}

const decrease = 1e-4;
const curvature = 0.9;
const maxEvaluations = 25;

/** The best point found, and the number of evaluations. The search widens an interval, then narrows it by cubic interpolation. */
export function searchStrongWolfe(inputs: LineSearchInputs): {
  readonly point: LinePoint;
  readonly evaluations: number;
} {
  const { start, firstStep, evaluate } = inputs;
  const isTooHigh = ({ t, loss }: LinePoint): boolean => loss > start.loss + decrease * t * start.slope;
  const isFlat = ({ slope }: LinePoint): boolean => Math.abs(slope) <= -curvature * start.slope;
  let previous = start;
  let current = evaluate(firstStep);
  let iterations = 0;
  let bracket: readonly [LinePoint, LinePoint] | undefined;
  while (iterations < maxEvaluations) {
    const isPast = isTooHigh(current) || (iterations > 1 && current.loss >= previous.loss);
    if (!isPast && isFlat(current)) return { point: current, evaluations: iterations + 1 };
    if (isPast || current.slope >= 0) {
      bracket = [previous, current];
      break;
    }
    const bounds = [current.t + 0.01 * (current.t - previous.t), current.t * 10] as const;
    const t = interpolate(previous, current, bounds);
    previous = current;
    current = evaluate(t);
    iterations += 1;
  }
  if (!bracket) {
    const point = start.loss <= current.loss ? start : current;
    return { point, evaluations: iterations + 1 };
  }
  return narrow(inputs, bracket, iterations, { isTooHigh, isFlat });
}

function narrow(
  { start, directionSize, toleranceChange, evaluate }: LineSearchInputs,
  [first, second]: readonly [LinePoint, LinePoint],
  iterationsBefore: number,
  conditions: Readonly<Record<"isTooHigh" | "isFlat", (point: LinePoint) => boolean>>,
): { readonly point: LinePoint; readonly evaluations: number } {
  let iterations = iterationsBefore;
  let [low, high] = first.loss <= second.loss ? [first, second] : [second, first];
  let isStuck = false;
  while (iterations < maxEvaluations && Math.abs(high.t - low.t) * directionSize >= toleranceChange) {
    const [lower, upper] = [Math.min(low.t, high.t), Math.max(low.t, high.t)];
    let t = interpolate(low, high, [lower, upper]);
    const margin = 0.1 * (upper - lower);
    if (Math.min(upper - t, t - lower) < margin) {
      // Close to an end twice, or outside: stay a tenth away from it.
      if (isStuck || t >= upper || t <= lower) {
        t = Math.abs(t - upper) < Math.abs(t - lower) ? upper - margin : lower + margin;
        isStuck = false;
      } else isStuck = true;
    } else isStuck = false;
    const point = evaluate(t);
    iterations += 1;
    if (conditions.isTooHigh(point) || point.loss >= low.loss) {
      high = point;
      if (high.loss < low.loss) [low, high] = [high, low];
      continue;
    }
    if (conditions.isFlat(point)) {
      low = point;
      break;
    }
    if (point.slope * (high.t - low.t) >= 0) high = low;
    low = point;
  }
  return { point: Number.isFinite(low.loss) ? low : start, evaluations: iterations + 1 };
}

/** The minimum of the cubic through two points with their slopes, within bounds; the middle if there is none. */
function interpolate(a: LinePoint, b: LinePoint, [lower, upper]: readonly [number, number]): number {
  const [left, right] = a.t <= b.t ? [a, b] : [b, a];
  const d1 = left.slope + right.slope - (3 * (left.loss - right.loss)) / (left.t - right.t);
  const square = d1 ** 2 - left.slope * right.slope;
  if (!(square >= 0)) return (lower + upper) / 2;
  const d2 = Math.sqrt(square);
  const minimum =
    right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return Math.min(Math.max(minimum, lower), upper);
}
