/** A sortable table with keyboard navigation; long tables have pages. */

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { formatCount } from "./format.js";

export interface TableColumn<Row> {
  readonly label: string;
  /** The sort key. */
  readonly value: (row: Row) => string | number | undefined;
  readonly show?: (row: Row) => ComponentChildren;
  readonly isNumber?: boolean;
  /** The tooltip of the header. */
  readonly title?: string;
}

export interface SortTableProps<Row> {
  readonly label: string;
  readonly rows: readonly Row[];
  readonly columns: readonly TableColumn<Row>[];
  /** The initial sort column, descending; default: the order of the rows. */
  readonly sortBy?: string;
  readonly pageSize?: number;
  readonly isSelected?: (row: Row) => boolean;
  readonly onChoose?: (row: Row) => void;
  readonly footer?: ComponentChildren;
}

export function SortTable<Row>(props: SortTableProps<Row>) {
  const { label, rows, columns, sortBy, pageSize = 25, isSelected, onChoose, footer } = props;
  const [sort, setSort] = useState<{ label: string | undefined; isDescending: boolean }>({
    label: sortBy,
    isDescending: true,
  });
  const [page, setPage] = useState(0);
  const [active, setActive] = useState(-1);
  const id = useId();
  const body = useRef<HTMLTableSectionElement>(null);

  const sorted = useMemo(() => {
    const column = columns.find((candidate) => candidate.label === sort.label);
    return column
      ? [...rows].sort((a, b) => compare(column.value(a), column.value(b), sort.isDescending))
      : rows;
  }, [rows, sort, columns]);
  const pages = Math.max(1, Math.ceil(sorted.length / pageSize));
  const current = Math.min(page, pages - 1);
  const shown = sorted.slice(current * pageSize, (current + 1) * pageSize);

  useEffect(() => {
    body.current?.querySelector(".active")?.scrollIntoView({ block: "nearest" });
  }, [active]);

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLTableElement>): void => {
    if (event.target !== event.currentTarget || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = shown[active];
    if (event.key === "ArrowDown") setActive(Math.min(shown.length - 1, active + 1));
    else if (event.key === "ArrowUp") setActive(Math.max(0, active - 1));
    else if (event.key === "PageDown") setPage(Math.min(pages - 1, current + 1));
    else if (event.key === "PageUp") setPage(Math.max(0, current - 1));
    else if (event.key === "Enter" && row !== undefined) onChoose?.(row);
    else return;
    event.preventDefault();
  };

  return (
    <div class="table">
      <div class="scroll">
        <table
          // biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: a table with keyboard navigation is a grid.
          role="grid"
          tabIndex={0}
          aria-label={`${label}: ${formatCount(rows.length)} rows, arrow keys move`}
          aria-rowcount={rows.length}
          aria-activedescendant={active >= 0 && active < shown.length ? `${id}-${active}` : undefined}
          onKeyDown={onKeyDown}
        >
          <thead>
            <tr>
              {columns.map((column) => (
                <th
                  key={column.label}
                  scope="col"
                  class={column.isNumber ? "number" : ""}
                  aria-sort={
                    sort.label === column.label ? (sort.isDescending ? "descending" : "ascending") : "none"
                  }
                >
                  <button
                    type="button"
                    title={column.title ?? `Sort by ${column.label}`}
                    onClick={() => {
                      const isDescending =
                        sort.label === column.label ? !sort.isDescending : column.isNumber === true;
                      setSort({ label: column.label, isDescending });
                      setPage(0);
                    }}
                  >
                    {column.label}
                    <span aria-hidden="true">
                      {sort.label === column.label ? (sort.isDescending ? " ↓" : " ↑") : ""}
                    </span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={body}>
            {shown.map((row, index) => (
              <tr
                key={`${current}-${index}`}
                id={`${id}-${index}`}
                class={`${index === active ? "active" : ""} ${isSelected?.(row) ? "chosen" : ""}`}
                aria-selected={isSelected?.(row) ?? false}
                onClick={() => {
                  setActive(index);
                  onChoose?.(row);
                }}
                onKeyDown={() => {}}
              >
                {columns.map((column) => (
                  <td key={column.label} class={column.isNumber ? "number" : ""}>
                    {column.show ? column.show(row) : (column.value(row) ?? "–")}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
          {footer ? <tfoot>{footer}</tfoot> : null}
        </table>
      </div>
      {pages > 1 ? (
        <div class="pages">
          <button type="button" class="small" disabled={current === 0} onClick={() => setPage(current - 1)}>
            Back
          </button>
          <span>
            {formatCount(current * pageSize + 1)}–{formatCount(current * pageSize + shown.length)} of{" "}
            {formatCount(sorted.length)}
          </span>
          <button
            type="button"
            class="small"
            disabled={current === pages - 1}
            onClick={() => setPage(current + 1)}
          >
            Next
          </button>
        </div>
      ) : null}
    </div>
  );
}

/** Unknown values come last in both directions. */
function compare(
  a: string | number | undefined,
  b: string | number | undefined,
  isDescending: boolean,
): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return isDescending ? -order : order;
}
