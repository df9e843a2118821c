/** The uPlot options: axes, lines, bands, marks. */

import type uPlot from "uplot";
import { formatCount } from "../tables/format.js";
import type { Column } from "../wire.js";
import type { Ink } from "./palette.js";
import { byteTicks, outlierLimit, type Range } from "./scales.js";

export interface ChartSeries {
  readonly label: string;
  readonly values: Column;
  readonly colour: string;
  readonly dash?: readonly number[];
  /** A background line without a legend entry. */
  readonly isFaint?: boolean;
  /** Fills down to zero, or to the previous filled series. */
  readonly isFilled?: boolean;
  /** Dots instead of a line. */
  readonly isDots?: boolean;
  /** Each point's min. and max. value, drawn as a band. */
  readonly band?: { readonly low: Column; readonly high: Column };
}

/** A step that is marked by a vertical line. */
export interface ChartMark {
  readonly at: number;
  readonly label: string;
  readonly isIncident?: boolean;
}

export interface ChartShape {
  readonly xLabel: string;
  readonly isLog: boolean;
  readonly startsAtZero: boolean;
  readonly spansGaps: boolean;
  /** Cut off a few extreme values. */
  readonly clipsOutliers: boolean;
  readonly height: number;
  /** Ticks are powers of two. */
  readonly isBytes: boolean;
}

export interface ChartEvents {
  readonly marks: () => readonly ChartMark[];
  readonly select: (range: Range) => void;
  readonly point: (index: number | undefined) => void;
  readonly drawn: () => void;
}

const font = "12px system-ui, sans-serif";

export function chartOptions(
  shape: ChartShape,
  series: readonly ChartSeries[],
  ink: Ink,
  format: (value: number) => string,
  events: ChartEvents,
): Omit<uPlot.Options, "width"> {
  const { isLog, startsAtZero, spansGaps, height } = shape;
  const axis: uPlot.Axis = {
    stroke: ink.muted,
    font,
    grid: { stroke: ink.line, width: 1 },
    ticks: { stroke: ink.line, width: 1, size: 4 },
  };
  const maxShown = shape.clipsOutliers
    ? Math.max(...series.map(({ values }) => outlierLimit(values)))
    : Infinity;
  let isDrawn = false;
  return {
    height,
    // The page has its own legend below the chart.
    legend: { show: false },
    padding: [10, 26, 0, 0],
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { size: 7 },
      y: false,
    },
    scales: {
      x: { time: false },
      y: {
        distr: isLog ? 3 : 1,
        ...(!isLog && {
          range: (_: uPlot, low: number | null, high: number | null) =>
            padded(low, high === null ? null : Math.min(high, maxShown), startsAtZero),
        }),
      },
    },
    axes: [
      {
        ...axis,
        size: 30,
        values: (_, ticks) => ticks.map((value) => (Number.isInteger(value) ? formatCount(value) : "")),
      },
      {
        ...axis,
        ...(shape.isBytes && { splits: (_chart, _axis, low, high) => byteTicks({ min: low, max: high }, 5) }),
        size: (_, values) => 18 + 6.6 * Math.max(4, ...(values ?? []).map((text) => text?.length ?? 0)),
        values: (_, ticks) => ticks.map((value) => (value === null ? "" : format(value))),
      },
    ],
    series: [
      {},
      ...series.map((line, index) => lineOf(line, series, index, spansGaps)),
      ...bandEdges(series),
    ],
    bands: bandsOf(series),
    hooks: {
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < 4) return;
          events.select({ min: chart.posToVal(left, "x"), max: chart.posToVal(left + width, "x") });
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      setCursor: [(chart) => events.point(chart.cursor.idx ?? undefined)],
      draw: [
        (chart) => {
          drawMarks(chart, events.marks(), ink);
          if (isDrawn || chart.data[0].length === 0) return;
          isDrawn = true;
          events.drawn();
        },
      ],
    },
  };
}

function padded(low: number | null, high: number | null, startsAtZero: boolean): [number, number] {
  const [min, max] = [startsAtZero ? Math.min(0, low ?? 0) : (low ?? 0), high ?? 1];
  const margin = (max - min || Math.abs(max) || 1) * 0.06;
  return [startsAtZero && min === 0 ? 0 : min - margin, max + margin];
}

function lineOf(
  line: ChartSeries,
  all: readonly ChartSeries[],
  index: number,
  spansGaps: boolean,
): uPlot.Series {
  const { label, colour, dash = [], isFaint = false, isFilled = false, isDots = false } = line;
  const isStacked = isFilled && (all[index + 1]?.isFilled ?? false);
  return {
    label,
    stroke: isFaint ? `${colour}59` : colour,
    width: isDots ? 0 : isFaint ? 1 : 1.75,
    dash: [...dash],
    spanGaps: spansGaps,
    ...(isFilled && !isStacked && { fill: `${colour}38` }),
    points: isDots ? { show: true, size: 9, fill: colour, stroke: colour } : { size: 5, fill: colour },
    ...(isDots && { paths: () => null }),
  };
}

/** Two invisible lines with a filled area between them. */
function bandEdges(series: readonly ChartSeries[]): uPlot.Series[] {
  return series.flatMap(({ band }) =>
    band ? [0, 1].map(() => ({ stroke: "transparent", width: 0, points: { show: false } })) : [],
  );
}

function bandsOf(series: readonly ChartSeries[]): uPlot.Band[] {
  const bands: uPlot.Band[] = [];
  let edge = 1 + series.length;
  for (const [index, { band, colour, isFilled }] of series.entries()) {
    if (band) {
      bands.push({ series: [edge, edge + 1], fill: `${colour}2e` });
      edge += 2;
    }
    if (isFilled && series[index + 1]?.isFilled)
      bands.push({ series: [index + 1, index + 2], fill: `${colour}70` });
  }
  return bands;
}

function drawMarks(chart: uPlot, marks: readonly ChartMark[], ink: Ink): void {
  const { ctx: pen, bbox } = chart;
  const scale = devicePixelRatio;
  pen.save();
  pen.font = `${11 * scale}px system-ui, sans-serif`;
  pen.textBaseline = "top";
  pen.textAlign = "left";
  let free = -Infinity;
  for (const { at, label, isIncident = false } of marks) {
    const left = Math.round(chart.valToPos(at, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    pen.strokeStyle = isIncident ? ink.alert : ink.muted;
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = scale;
    pen.setLineDash(isIncident ? [] : [3 * scale, 3 * scale]);
    pen.beginPath();
    pen.moveTo(left + 0.5, bbox.top);
    pen.lineTo(left + 0.5, bbox.top + bbox.height);
    pen.stroke();
    const width = pen.measureText(label).width + 8 * scale;
    // Overlapping labels are omitted; their lines stay.
    if (left < free || left + width > bbox.left + bbox.width) continue;
    pen.fillText(label, left + 4 * scale, bbox.top + 2 * scale);
    free = left + width;
  }
  pen.restore();
}
