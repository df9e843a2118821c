/** Shares as bars, with a line for the baseline. */

import { formatBytes, formatPercent } from "../tables/format.js";
import { lookOf } from "./palette.js";

export interface Bar {
  readonly label: string;
  /** From 0 to 1; undefined if unknown. */
  readonly share: number | undefined;
  /** A thin line across the bar: the baseline. */
  readonly baseline?: number | undefined;
  readonly colour: string;
}

/** One bar per line, with its value. */
export function ShareBars({ bars, max = 1 }: { readonly bars: readonly Bar[]; readonly max?: number }) {
  return (
    <ul class="bars">
      {bars.map(({ label, share, baseline, colour }) => (
        <li key={label}>
          <span class="name">{label}</span>
          <span class="track" aria-hidden="true">
            <span class="fill" style={{ width: `${(100 * (share ?? 0)) / max}%`, background: colour }} />
            {baseline === undefined ? null : (
              <span class="baseline" style={{ left: `${(100 * baseline) / max}%` }} />
            )}
          </span>
          <span class="value">
            {formatPercent(share)}
            {baseline === undefined ? null : <small> against {formatPercent(baseline)}</small>}
          </span>
        </li>
      ))}
    </ul>
  );
}

export interface Holder {
  readonly label: string;
  readonly bytes: number;
}

/** Max. holders shown individually; smaller ones are grouped. */
const maxHolders = 11;

export interface BudgetBarProps {
  readonly holders: readonly Holder[];
  readonly used: number;
  readonly limit: number;
}

/** A thin bar: used memory of the limit. A thick bar: used memory by holder. */
export function BudgetBar({ holders, used, limit }: BudgetBarProps) {
  const sorted = [...holders].sort((a, b) => b.bytes - a.bytes);
  const shown = sorted.length > maxHolders + 1 ? sorted.slice(0, maxHolders) : sorted;
  const rest = used - shown.reduce((sum, { bytes }) => sum + bytes, 0);
  const hiddenCount = sorted.length - shown.length;
  const entries = [
    ...shown.map((holder, index) => ({ ...holder, colour: lookOf(index).colour, isStriped: index >= 6 })),
    ...(rest > 0
      ? [
          {
            label: hiddenCount > 0 ? `${hiddenCount} others` : "others",
            bytes: rest,
            colour: "#8a93a3",
            isStriped: false,
          },
        ]
      : []),
  ];
  const total = Math.max(used, 1);
  return (
    <div class="budget">
      <div
        class="progress"
        role="progressbar"
        aria-label="Used of the limit"
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={used}
      >
        <span style={{ width: `${(100 * used) / Math.max(limit, total)}%` }} />
      </div>
      <div class="whole" aria-hidden="true">
        {entries.map(({ label, bytes, colour, isStriped }, index) => (
          <span
            key={`${index}-${label}`}
            class={isStriped ? "striped" : ""}
            title={`${label}: ${formatBytes(bytes)}`}
            style={{ width: `${(100 * bytes) / total}%`, backgroundColor: colour }}
          />
        ))}
      </div>
      <ul class="holders">
        {entries.map(({ label, bytes, colour, isStriped }, index) => (
          <li key={`${index}-${label}`}>
            <span class={isStriped ? "key striped" : "key"} style={{ backgroundColor: colour }} />
            <span class="name" title={label}>
              {label}
            </span>
            <b>{formatBytes(bytes)}</b>
            <small>{formatPercent(bytes / total)}</small>
          </li>
        ))}
      </ul>
    </div>
  );
}
