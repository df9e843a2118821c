/**
 * A chart of lines over steps: uPlot with our colours, zoom by drag, wheel and keys, a legend that tells the values under the
 * cursor, and its picture as a file.
 */

import type { Ref, TargetedKeyboardEvent } from "preact";
import { useEffect, useImperativeHandle, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Column } from "../wire.js";
import { type ChartShape, chartOptions } from "./chart-options.js";
import { moveRange, type Range, zoomRange } from "./scales.js";
import { useInk } from "./theme.js";

export interface ChartSeries {
  readonly label: string;
  readonly values: Column;
  readonly colour: string;
  readonly dash?: readonly number[];
  /** A line in the background of another one; the legend leaves it out. */
  readonly isFaint?: boolean;
  /** Fills from this line down to zero, or to the series before it where that is filled too. */
  readonly isFilled?: boolean;
  /** No line but dots. */
  readonly isDots?: boolean;
  /** Each point's least and greatest value, drawn as a band behind the line. */
  readonly band?: { readonly low: Column; readonly high: Column };
}

/** A moment that is marked by an upright line. */
export interface ChartMark {
  readonly at: number;
  readonly label: string;
  readonly isIncident?: boolean;
}

export interface ChartHandle {
  /** The chart with its title and legend. */
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
  readonly cutsTowers?: boolean;
  readonly isBytes?: boolean;
  /** All that can be shown, and the stretch that is; without them the chart can't be zoomed. */
  readonly whole?: Range | undefined;
  readonly range?: Range | undefined;
  readonly onRange?: (range: Range | undefined) => void;
  readonly marks?: readonly ChartMark[];
  readonly height?: number;
  /** Draws across what isn't known: series of several runs have different steps. */
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
    cutsTowers = false,
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
  const [place, setPlace] = useState<number | undefined>(undefined);
  const ink = useInk();
  const latest = useRef({ whole, range, onRange, marks, onDraw });
  latest.current = { whole, range, onRange, marks, onDraw };

  const shape: ChartShape = { xLabel, isLog, startsAtZero, spansGaps, cutsTowers, height, isBytes };
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
      select: (chosen) => latest.current.onRange?.(chosen),
      point: setPlace,
      drawn: () => latest.current.onDraw?.(),
    });
    const made = new uPlot({ ...options, width: Math.max(120, element.clientWidth) }, data, element);
    plot.current = made;
    applyRange(made, latest.current.range ?? latest.current.whole);
    const observer = new ResizeObserver(() =>
      made.setSize({ width: Math.max(120, element.clientWidth), height }),
    );
    observer.observe(element);
    const onWheel = (event: WheelEvent): void => {
      const { whole: all, range: shown, onRange: tell } = latest.current;
      // What can't get smaller lets the page scroll on.
      if (!all || !tell || event.ctrlKey || (event.deltaY > 0 && !shown)) return;
      event.preventDefault();
      const about = made.posToVal(event.clientX - made.over.getBoundingClientRect().left, "x");
      const zoomed = zoomRange(shown ?? all, about, 1.0018 ** event.deltaY, all, 4);
      tell(zoomed.min <= all.min && zoomed.max >= all.max ? undefined : zoomed);
    };
    made.over.addEventListener("wheel", onWheel, { passive: false });
    made.over.addEventListener("dblclick", () => latest.current.onRange?.(undefined));
    return () => {
      observer.disconnect();
      made.destroy();
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
    () => ({ picture: async () => pictureOf(plot.current, title, series, ink) }),
    [key, title],
  );

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    const chart = plot.current;
    if (!chart || event.altKey || event.ctrlKey || event.metaKey) return;
    const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (along !== undefined && event.shiftKey && whole && range && onRange) {
      onRange(moveRange(range, along * 0.2 * (range.max - range.min), whole));
    } else if (along !== undefined) {
      const next = Math.max(0, Math.min(x.length - 1, (place ?? (along > 0 ? -1 : x.length)) + along));
      const left = chart.valToPos(x[next] ?? 0, "x");
      chart.setCursor({ left: Math.max(0, left), top: chart.over.clientHeight / 2 });
      setPlace(next);
    } else if ((event.key === "+" || event.key === "-") && whole && onRange) {
      const shown = range ?? whole;
      const about = place === undefined ? (shown.min + shown.max) / 2 : (x[place] ?? shown.min);
      onRange(zoomRange(shown, about, event.key === "+" ? 0.7 : 1 / 0.7, whole, 4));
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
        aria-valuenow={place ?? 0}
        aria-valuetext={place === undefined ? "no point chosen" : legendText(named, x, place, xLabel, format)}
        onKeyDown={onKeyDown}
      />
      <ul class="legend">
        <li class="at">{place === undefined ? xLabel : `${xLabel} ${format2(x[place])}`}</li>
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
            {place === undefined ? null : <b>{format(values[place])}</b>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function format2(value: number | null | undefined): string {
  return typeof value === "number" ? Math.round(value).toLocaleString("en-GB") : "–";
}

function legendText(
  series: readonly ChartSeries[],
  x: Column,
  place: number,
  xLabel: string,
  format: ChartProps["format"],
): string {
  const values = series.map(({ label, values: own }) => `${label} ${format(own[place])}`);
  return [`${xLabel} ${format2(x[place])}`, ...values].join(", ");
}

/** uPlot's columns: the places along, each series, then each band's two edges. */
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

function pictureOf(
  chart: uPlot | undefined,
  title: string,
  series: readonly ChartSeries[],
  ink: { readonly ground: string; readonly text: string },
): Promise<Blob | undefined> {
  if (!chart) return Promise.resolve(undefined);
  const drawn = chart.ctx.canvas;
  const scale = devicePixelRatio;
  const canvas = document.createElement("canvas");
  const head = Math.round(56 * scale);
  canvas.width = drawn.width;
  canvas.height = drawn.height + head;
  const pen = canvas.getContext("2d");
  if (!pen) return Promise.resolve(undefined);
  pen.fillStyle = ink.ground;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(drawn, 0, head);
  pen.textBaseline = "middle";
  pen.fillStyle = ink.text;
  pen.font = `600 ${14 * scale}px system-ui, sans-serif`;
  pen.fillText(title, 12 * scale, 18 * scale);
  pen.font = `${12 * scale}px system-ui, sans-serif`;
  let left = 12 * scale;
  for (const { label, colour, isFaint } of series) {
    if (isFaint) continue;
    pen.fillStyle = colour;
    pen.fillRect(left, 37 * scale, 16 * scale, 3 * scale);
    pen.fillStyle = ink.text;
    pen.fillText(label, left + 22 * scale, 39 * scale);
    left += 22 * scale + pen.measureText(label).width + 18 * scale;
  }
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(blob ?? undefined)));
}
