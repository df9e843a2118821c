/** A tensor of the step memory picture: a tooltip, and one line of text. */

import type { Range } from "../charts/scales.js";
import { formatBytes, formatCount } from "../tables/format.js";
import type { PlannedTensor, PlanRecord } from "../wire.js";
import type { PlotArea, View } from "./plan-drawing.js";
import { type PlanPicture, phaseOf } from "./plan-picture.js";

/** A tensor in one line. */
export function describeTensor(tensor: PlannedTensor, { calls }: PlanRecord): string {
  const { label, type, bytes, offset, birth, death, isSaved } = tensor;
  const facts = [
    `${label}: ${type ?? "scratch memory"}`,
    formatBytes(bytes),
    `at byte ${formatCount(offset)}`,
    `calls ${birth}–${death}`,
    `${phaseOf(tensor, calls)}${isSaved ? ", saved for backward" : ""}`,
  ];
  return facts.join(" · ");
}

interface TooltipProps {
  readonly tensor: PlannedTensor;
  readonly plan: PlanRecord;
  readonly left: number;
  readonly top: number;
  readonly isLeftward: boolean;
}

export function TensorTooltip({ tensor, plan, left, top, isLeftward }: TooltipProps) {
  const { label, type, bytes, offset, birth, death, isSaved } = tensor;
  const nameOf = (column: number): string => plan.calls[Math.floor(column)]?.op ?? "";
  return (
    <div
      class={isLeftward ? "tooltip leftward" : "tooltip"}
      style={{ left: `${left}px`, top: `${top}px` }}
      role="tooltip"
    >
      <b>{label}</b>
      <dl>
        <dt>type</dt>
        <dd>{type ?? "scratch memory"}</dd>
        <dt>bytes</dt>
        <dd>
          {formatBytes(bytes)} ({formatCount(bytes)})
        </dd>
        <dt>address</dt>
        <dd>
          {formatCount(offset)} to {formatCount(offset + bytes)}
        </dd>
        <dt>made by</dt>
        <dd>
          call {birth} {nameOf(birth)}
        </dd>
        <dt>last read by</dt>
        <dd>
          call {death} {nameOf(death)}
        </dd>
        <dt>phase</dt>
        <dd>{phaseOf(tensor, plan.calls)}</dd>
        <dt>saved</dt>
        <dd>{isSaved ? "for backward" : "no"}</dd>
      </dl>
    </div>
  );
}

/** Next to the tensor's rectangle, on the side with more space. */
export function tooltipPosition(
  picture: PlanPicture,
  index: number,
  view: View,
  area: PlotArea,
): Pick<TooltipProps, "left" | "top" | "isLeftward"> {
  const box = picture.boxes[index] ?? { left: 0, right: 0, bottom: 0, top: 0 };
  const share = (value: number, { min, max }: Range): number =>
    Math.max(0, Math.min(1, (value - min) / (max - min)));
  const isLeftward = share((box.left + box.right) / 2, view.calls) > 0.5;
  const left = area.left + share(isLeftward ? box.left : box.right, view.calls) * area.width;
  const top = area.top + (1 - share(box.top, view.bytes)) * area.height;
  return { left: left + (isLeftward ? -8 : 8), top: Math.min(top, area.height - 170), isLeftward };
}
