/**
 * A line chart over steps: uPlot with the page's colours, zoom by drag, wheel and keys, a legend with the values at the cursor, and
 * export as an image.
 */

import type { Ref, TargetedKeyboardEvent } from "preact";
import { useEffect, useImperativeHandle, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Column } from "../wire.js";
import { type ChartMark, type ChartSeries, type ChartShape, chartOptions } from "./chart-options.js";
import { chartPicture } from "./chart-picture.js";
import { moveRange, type Range, zoomRange } from "./scales.js";
import { useInk } from "./theme.js";

export interface ChartHandle {
  /** The chart as an image, with title and legend. */
  readonly picture: () => Promise<Blob | undefined>;
}

export interface ChartProps {
  readonly title: string;
  readonly x: Column;
  readonly xLabel?: string;
  readonly series: readonly ChartSeries[];
  readonly format: (value: number | null | undefined) => string;
  readonly isLog?: boolean;
  readonly startsAtZero?: boolean;
  readonly clipsOutliers?: boolean;
  readonly isBytes?: boolean;
  /** The whole range and the visible range; without them the chart can't be zoomed. */
  readonly whole?: Range | undefined;
  readonly range?: Range | undefined;
  readonly onRange?: (range: Range | undefined) => void;
  readonly marks?: readonly ChartMark[];
  readonly height?: number;
  /** Connects points across gaps: series of several runs have different steps. */
  readonly spansGaps?: boolean;
  readonly handle?: Ref<ChartHandle>;
  readonly onDraw?: () => void;
}

export function Chart(props: ChartProps) {
  const {
    title,
    x,
    xLabel = "step",
    series,
    format,
    isLog = false,
    startsAtZero = false,
    clipsOutliers = false,
  } = props;
  const {
    whole,
    range,
    onRange,
    marks = [],
    height = 240,
    spansGaps = false,
    isBytes = false,
    handle,
    onDraw,
  } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [pointIndex, setPointIndex] = useState<number | undefined>(undefined);
  const ink = useInk();
  const latest = useRef({ whole, range, onRange, marks, onDraw });
  latest.current = { whole, range, onRange, marks, onDraw };

  const shape: ChartShape = { xLabel, isLog, startsAtZero, spansGaps, clipsOutliers, height, isBytes };
  const key = JSON.stringify([
    shape,
    ink,
    series.map(({ values: _, band, ...look }) => [look, band !== undefined]),
  ]);
  const data = useMemo(() => tableOf(x, series, isLog), [x, series, isLog]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const options = chartOptions(shape, series, ink, format, {
      marks: () => latest.current.marks,
      select: (selected) => latest.current.onRange?.(selected),
      point: setPointIndex,
      drawn: () => latest.current.onDraw?.(),
    });
    const chart = new uPlot({ ...options, width: Math.max(120, element.clientWidth) }, data, element);
    plot.current = chart;
    applyRange(chart, latest.current.range ?? latest.current.whole);
    const observer = new ResizeObserver(() =>
      chart.setSize({ width: Math.max(120, element.clientWidth), height }),
    );
    observer.observe(element);
    const onWheel = (event: WheelEvent): void => {
      const { whole: all, range: shown, onRange: changeRange } = latest.current;
      // At the zoom limit, the wheel scrolls the page.
      if (!all || !changeRange || event.ctrlKey || (event.deltaY > 0 && !shown)) return;
      event.preventDefault();
      const center = chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x");
      const zoomed = zoomRange(shown ?? all, center, 1.0018 ** event.deltaY, all, 4);
      changeRange(zoomed.min <= all.min && zoomed.max >= all.max ? undefined : zoomed);
    };
    chart.over.addEventListener("wheel", onWheel, { passive: false });
    chart.over.addEventListener("dblclick", () => latest.current.onRange?.(undefined));
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = undefined;
    };
  }, [key]);

  useEffect(() => {
    const chart = plot.current;
    if (!chart) return;
    chart.setData(data, false);
    applyRange(chart, range ?? whole);
  }, [data, key, range?.min, range?.max, whole?.min, whole?.max, JSON.stringify(marks)]);

  useImperativeHandle(
    handle ?? null,
    () => ({ picture: async () => chartPicture(plot.current, title, series, ink) }),
    [key, title],
  );

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    const chart = plot.current;
    if (!chart || event.altKey || event.ctrlKey || event.metaKey) return;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (direction !== undefined && event.shiftKey && whole && range && onRange) {
      onRange(moveRange(range, direction * 0.2 * (range.max - range.min), whole));
    } else if (direction !== undefined) {
      const next = Math.max(
        0,
        Math.min(x.length - 1, (pointIndex ?? (direction > 0 ? -1 : x.length)) + direction),
      );
      const left = chart.valToPos(x[next] ?? 0, "x");
      chart.setCursor({ left: Math.max(0, left), top: chart.over.clientHeight / 2 });
      setPointIndex(next);
    } else if ((event.key === "+" || event.key === "-") && whole && onRange) {
      const shown = range ?? whole;
      const center = pointIndex === undefined ? (shown.min + shown.max) / 2 : (x[pointIndex] ?? shown.min);
      onRange(zoomRange(shown, center, event.key === "+" ? 0.7 : 1 / 0.7, whole, 4));
    } else if (event.key === "0" || event.key === "Escape") onRange?.(undefined);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const named = series.filter(({ isFaint }) => !isFaint);
  return (
    <div class="chart">
      <div
        ref={host}
        class="plot"
        role="slider"
        tabIndex={0}
        aria-label={`${title}: arrow keys move from point to point, plus and minus zoom, 0 shows everything`}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, x.length - 1)}
        aria-valuenow={pointIndex ?? 0}
        aria-valuetext={
          pointIndex === undefined ? "no point selected" : legendText(named, x, pointIndex, xLabel, format)
        }
        onKeyDown={onKeyDown}
      />
      <ul class="legend">
        <li class="at">{pointIndex === undefined ? xLabel : `${xLabel} ${formatX(x[pointIndex])}`}</li>
        {named.map(({ label, colour, values, dash, isDots }) => (
          <li key={label}>
            <svg width="18" height="10" aria-hidden="true">
              {isDots ? (
                <circle cx="9" cy="5" r="4" fill={colour} />
              ) : (
                <path d="M0 5H18" stroke={colour} stroke-width="3" stroke-dasharray={dash?.join(" ") ?? ""} />
              )}
            </svg>
            {label}
            {pointIndex === undefined ? null : <b>{format(values[pointIndex])}</b>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function formatX(value: number | null | undefined): string {
  return typeof value === "number" ? Math.round(value).toLocaleString("en-GB") : "–";
}

function legendText(
  series: readonly ChartSeries[],
  x: Column,
  pointIndex: number,
  xLabel: string,
  format: ChartProps["format"],
): string {
  const values = series.map(({ label, values: points }) => `${label} ${format(points[pointIndex])}`);
  return [`${xLabel} ${formatX(x[pointIndex])}`, ...values].join(", ");
}

/** uPlot's columns: x, each series, then the two edges of each band. */
function tableOf(x: Column, series: readonly ChartSeries[], isLog: boolean): uPlot.AlignedData {
  const clean = (values: Column): (number | null)[] =>
    isLog ? values.map((value) => (value !== null && value > 0 ? value : null)) : [...values];
  const bands = series.flatMap(({ band }) => (band ? [clean(band.high), clean(band.low)] : []));
  return [x as number[], ...series.map(({ values }) => clean(values)), ...bands];
}

function applyRange(chart: uPlot, range: Range | undefined): void {
  const steps = chart.data[0];
  const [first, last] = [steps[0] ?? 0, steps.at(-1) ?? 1];
  chart.setScale("x", range ?? { min: first, max: last > first ? last : first + 1 });
}
