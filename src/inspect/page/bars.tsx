/** Shares as bars: of a whole, beside one another, with a line for what is to be beaten. */

import { formatBytes, formatPercent } from "./format.js";
import { lookOf } from "./palette.js";

export interface Bar {
  readonly label: string;
  /** From 0 to 1; undefined where it isn't known. */
  readonly share: number | undefined;
  /** A thin line across the bar: what it should beat. */
  readonly baseline?: number | undefined;
  readonly colour: string;
}

/** One bar a line, with its value in figures. */
export function ShareBars({ bars, most = 1 }: { readonly bars: readonly Bar[]; readonly most?: number }) {
  return (
    <ul class="bars">
      {bars.map(({ label, share, baseline, colour }) => (
        <li key={label}>
          <span class="name">{label}</span>
          <span class="track" aria-hidden="true">
            <span class="fill" style={{ width: `${(100 * (share ?? 0)) / most}%`, background: colour }} />
            {baseline === undefined ? null : (
              <span class="baseline" style={{ left: `${(100 * baseline) / most}%` }} />
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

/** All holders in one bar, as long as the limit; what is left of it stays empty. */
export function BudgetBar({
  holders,
  used,
  limit,
}: {
  readonly holders: readonly Holder[];
  readonly used: number;
  readonly limit: number;
}) {
  const sorted = [...holders].sort((a, b) => b.bytes - a.bytes);
  const told = sorted.reduce((sum, { bytes }) => sum + bytes, 0);
  const rest = used - told;
  const entries = [
    ...sorted.map((holder, place) => ({ ...holder, colour: lookOf(place).colour, isStriped: place >= 6 })),
    ...(rest > 0 ? [{ label: "others", bytes: rest, colour: "#8a93a3", isStriped: false }] : []),
  ];
  const whole = Math.max(limit, used, 1);
  return (
    <div class="budget">
      <div class="whole" aria-hidden="true">
        {entries.map(({ label, bytes, colour, isStriped }) => (
          <span
            key={label}
            class={isStriped ? "striped" : ""}
            title={`${label}: ${formatBytes(bytes)}`}
            style={{ width: `${(100 * bytes) / whole}%`, backgroundColor: colour }}
          />
        ))}
      </div>
      <ul class="holders">
        {entries.map(({ label, bytes, colour, isStriped }) => (
          <li key={label}>
            <span class={isStriped ? "key striped" : "key"} style={{ backgroundColor: colour }} />
            <span class="name">{label}</span>
            <b>{formatBytes(bytes)}</b>
            <small>{formatPercent(bytes / whole)}</small>
          </li>
        ))}
        <li>
          <span class="key free" />
          <span class="name">free</span>
          <b>{formatBytes(Math.max(0, limit - used))}</b>
          <small>{formatPercent(Math.max(0, limit - used) / whole)}</small>
        </li>
      </ul>
    </div>
  );
}
