-- Reports by Athena on tables that `inventory-orders export` has exported to S3. That command writes a copy of this file
-- in which the places are filled in. Athena runs one statement at a time: first the tables and views, then any query.
--
-- The form of the files:  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
-- What reads them:        https://docs.aws.amazon.com/athena/latest/ug/hive-json-serde.html (names without upper case). The
--                         OpenX SerDe would refuse a line on which two attributes of an order differ in case alone.
-- Lists of maps:          https://docs.aws.amazon.com/athena/latest/ug/filtering-with-unnest.html
-- What attributes mean:   docs/data-model.md
--
-- A product's stock at a location has a key of its own in `products` and `stock_adjustments`: `tea#berlin`. The location of the
-- default one is the empty text.
--
-- Times are UTC and sort as text, so a date is a text too: '2026-12-01'.
--
-- Athena writes results as CSV. A spreadsheet takes text that begins with = + - @ for a formula
-- (https://owasp.org/www-community/attacks/CSV_Injection), so the queries put an apostrophe before ids and names that do.

-- Database: of this stage alone.

CREATE DATABASE IF NOT EXISTS $database;

-- Tables. A newer export has other places: these statements replace the tables of the one before.

DROP TABLE IF EXISTS $database.products;

CREATE EXTERNAL TABLE $database.products (
  item struct<
    productid: struct<s: string>,
    name: struct<s: string>>
)
ROW FORMAT SERDE 'org.apache.hive.hcatalog.data.JsonSerDe'
LOCATION '$Products';

DROP TABLE IF EXISTS $database.orders;

CREATE EXTERNAL TABLE $database.orders (
  item struct<
    orderid: struct<s: string>,
    status: struct<s: string>,
    reason: struct<s: string>,
    shortages: struct<l: array<struct<m: struct<productid: struct<s: string>, wanted: struct<n: string>>>>>,
    createdat: struct<s: string>,
    confirmedat: struct<s: string>,
    fulfilledat: struct<s: string>,
    items: struct<l: array<struct<m: struct<
      productid: struct<s: string>,
      locationid: struct<s: string>,
      quantity: struct<n: string>,
      productcreatedat: struct<s: string>>>>>,
    steps: struct<l: array<struct<m: struct<
      action: struct<s: string>,
      at: struct<s: string>,
      restock: struct<bool: boolean>,
      items: struct<l: array<struct<m: struct<
        productid: struct<s: string>,
        quantity: struct<n: string>,
        returnedversion: struct<n: string>>>>>>>>>>
)
ROW FORMAT SERDE 'org.apache.hive.hcatalog.data.JsonSerDe'
LOCATION '$Orders';

DROP TABLE IF EXISTS $database.stock_adjustments;

CREATE EXTERNAL TABLE $database.stock_adjustments (
  item struct<
    productid: struct<s: string>,
    productcreatedat: struct<s: string>,
    delta: struct<n: string>,
    reason: struct<s: string>,
    appliedat: struct<s: string>>
)
ROW FORMAT SERDE 'org.apache.hive.hcatalog.data.JsonSerDe'
LOCATION '$StockAdjustments';

-- View: a row for each line of an order, but for those of `make verify`. `taken_from` is null where no units were taken;
-- `location_id` is where they were taken from.

CREATE OR REPLACE VIEW $database.order_lines AS
SELECT
  item.orderid.s AS order_id,
  item.status.s AS status,
  item.reason.s AS reason,
  item.createdat.s AS created_at,
  item.confirmedat.s AS confirmed_at,
  line.m.productid.s AS product_id,
  coalesce(line.m.locationid.s, '') AS location_id,
  CAST(line.m.quantity.n AS bigint) AS quantity,
  line.m.productcreatedat.s AS taken_from
FROM $database.orders
CROSS JOIN UNNEST(item.items.l) AS t(line)
WHERE item.orderid.s NOT LIKE 'verify-%';

-- View: a row for each product of each step of an order. `returned_version` is null where no units went back into stock.

CREATE OR REPLACE VIEW $database.order_steps AS
SELECT
  item.orderid.s AS order_id,
  step.m.action.s AS action,
  step.m.at.s AS changed_at,
  step.m.restock.bool AS restock,
  part.m.productid.s AS product_id,
  CAST(part.m.quantity.n AS bigint) AS quantity,
  part.m.returnedversion.n AS returned_version
FROM $database.orders
CROSS JOIN UNNEST(item.steps.l) AS t(step)
CROSS JOIN UNNEST(step.m.items.l) AS u(part)
WHERE item.orderid.s NOT LIKE 'verify-%';

-- View: units that have left: handed over (`fulfil`) or lost (`cancel`). A fulfilment without items moves all units of a line
-- that no other step moved.

CREATE OR REPLACE VIEW $database.departures AS
SELECT
  step.order_id,
  step.action,
  step.changed_at,
  step.product_id,
  line.location_id,
  step.quantity,
  line.taken_from
FROM $database.order_steps AS step
JOIN $database.order_lines AS line
  ON line.order_id = step.order_id AND line.product_id = step.product_id
WHERE step.action = 'fulfil' OR (step.action = 'cancel' AND NOT step.restock)
UNION ALL
SELECT
  line.order_id,
  'fulfil' AS action,
  whole.changed_at,
  line.product_id,
  line.location_id,
  line.quantity - coalesce(moved.quantity, 0) AS quantity,
  line.taken_from
FROM $database.order_lines AS line
JOIN (
  SELECT item.orderid.s AS order_id, step.m.at.s AS changed_at
  FROM $database.orders
  CROSS JOIN UNNEST(item.steps.l) AS t(step)
  WHERE step.m.action.s = 'fulfil' AND step.m.items.l IS NULL
) AS whole
  ON whole.order_id = line.order_id
LEFT JOIN (
  SELECT order_id, product_id, sum(quantity) AS quantity
  FROM $database.order_steps
  WHERE action IN ('fulfil', 'cancel')
  GROUP BY order_id, product_id
) AS moved
  ON moved.order_id = line.order_id AND moved.product_id = line.product_id;

-- View: what was sold, less what was cancelled. Returns are not taken off.

CREATE OR REPLACE VIEW $database.sales AS
SELECT
  line.order_id,
  line.created_at,
  line.confirmed_at,
  line.product_id,
  line.quantity - coalesce(cancelled.quantity, 0) AS units
FROM $database.order_lines AS line
LEFT JOIN (
  SELECT order_id, product_id, sum(quantity) AS quantity
  FROM $database.order_steps
  WHERE action = 'cancel'
  GROUP BY order_id, product_id
) AS cancelled
  ON cancelled.order_id = line.order_id AND cancelled.product_id = line.product_id
WHERE line.status IN ('PENDING', 'CONFIRMED', 'FULFILLED');

-- Query: sales by day, by the day on which an order was placed. `paid` counts those that were confirmed.

SELECT
  substr(created_at, 1, 10) AS day,
  count(DISTINCT order_id) AS orders,
  count(DISTINCT CASE WHEN confirmed_at IS NOT NULL THEN order_id END) AS paid,
  sum(units) AS units
FROM $database.sales
GROUP BY substr(created_at, 1, 10)
ORDER BY day;

-- Query: best sellers of a month. Set the dates.

SELECT
  concat(CASE WHEN substr(sales.product_id, 1, 1) IN ('=', '+', '-', '@') THEN '''' ELSE '' END, sales.product_id) AS product_id,
  concat(CASE WHEN substr(max(products.item.name.s), 1, 1) IN ('=', '+', '-', '@') THEN '''' ELSE '' END, max(products.item.name.s)) AS name,
  count(*) AS orders,
  sum(sales.units) AS units
FROM $database.sales AS sales
LEFT JOIN $database.products AS products ON products.item.productid.s = sales.product_id
WHERE sales.created_at >= '2026-11-01' AND sales.created_at < '2026-12-01' AND sales.units > 0
GROUP BY sales.product_id
ORDER BY units DESC, product_id
LIMIT 20;

-- Query: stock at a date, of all changes before it, by location: units on hand, those of them that orders wait for, and those
-- that orders can take, in rows and lanes together. A delisted product has none. Set the date.

SELECT
  concat(CASE WHEN substr(product_id, 1, 1) IN ('=', '+', '-', '@') THEN '''' ELSE '' END, product_id) AS product_id,
  concat(CASE WHEN substr(location_id, 1, 1) = '-' THEN '''' ELSE '' END, location_id) AS location_id,
  sum(on_hand) AS on_hand,
  sum(on_hand - available) AS committed,
  sum(available) AS available
FROM (
  SELECT
    product_id,
    location_id,
    sum(available) AS available,
    CASE WHEN max(closing) = 1 THEN 0 ELSE sum(on_hand) END AS on_hand
  FROM (
    SELECT
      split_part(item.productid.s, '#', 1) AS product_id,
      coalesce(split_part(item.productid.s, '#', 2), '') AS location_id,
      item.productcreatedat.s AS taken_from,
      CAST(item.delta.n AS bigint) AS available,
      CAST(item.delta.n AS bigint) AS on_hand,
      CASE WHEN item.reason.s = 'CLOSING' THEN 1 ELSE 0 END AS closing,
      item.appliedat.s AS changed_at
    FROM $database.stock_adjustments
    WHERE item.productid.s NOT LIKE 'verify-%'
    UNION ALL
    SELECT product_id, location_id, taken_from, -quantity AS available, 0 AS on_hand, 0 AS closing, created_at AS changed_at
    FROM $database.order_lines
    WHERE taken_from IS NOT NULL
    UNION ALL
    SELECT
      step.product_id,
      line.location_id,
      line.taken_from,
      step.quantity AS available,
      CASE WHEN step.action = 'return' THEN step.quantity ELSE 0 END AS on_hand,
      0 AS closing,
      step.changed_at
    FROM $database.order_steps AS step
    JOIN $database.order_lines AS line
      ON line.order_id = step.order_id AND line.product_id = step.product_id
    WHERE step.returned_version IS NOT NULL
    UNION ALL
    SELECT product_id, location_id, taken_from, 0 AS available, -quantity AS on_hand, 0 AS closing, changed_at
    FROM $database.departures
  ) AS changes
  WHERE changed_at < '2026-12-01'
  GROUP BY product_id, location_id, taken_from
) AS generations
GROUP BY product_id, location_id
ORDER BY product_id, location_id;

-- Query: rejections by product. For want of stock, the products that were short, at one location or several; for other
-- reasons, each of the order.

SELECT
  concat(CASE WHEN substr(product_id, 1, 1) IN ('=', '+', '-', '@') THEN '''' ELSE '' END, product_id) AS product_id,
  reason,
  count(*) AS orders,
  sum(wanted) AS units_wanted
FROM (
  SELECT
    shortage.m.productid.s AS product_id,
    item.reason.s AS reason,
    max(CAST(shortage.m.wanted.n AS bigint)) AS wanted
  FROM $database.orders
  CROSS JOIN UNNEST(item.shortages.l) AS t(shortage)
  WHERE item.orderid.s NOT LIKE 'verify-%'
  GROUP BY item.orderid.s, shortage.m.productid.s, item.reason.s
  UNION ALL
  SELECT product_id, reason, quantity AS wanted
  FROM $database.order_lines
  WHERE status = 'REJECTED' AND reason <> 'INSUFFICIENT_STOCK'
) AS rejections
GROUP BY product_id, reason
ORDER BY orders DESC, product_id;

-- Query: returns by product, and how many of the units went back into stock.

SELECT
  concat(CASE WHEN substr(product_id, 1, 1) IN ('=', '+', '-', '@') THEN '''' ELSE '' END, product_id) AS product_id,
  count(DISTINCT order_id) AS orders,
  sum(quantity) AS units,
  sum(CASE WHEN returned_version IS NOT NULL THEN quantity ELSE 0 END) AS back_in_stock
FROM $database.order_steps
WHERE action = 'return'
GROUP BY product_id
ORDER BY units DESC, product_id;

-- Query: shipped by day. `orders` counts those whose last units left on that day, `units` parts of other orders too.

SELECT
  substr(part.changed_at, 1, 10) AS day,
  count(DISTINCT CASE WHEN part.changed_at = complete.shipped_at THEN part.order_id END) AS orders,
  sum(part.quantity) AS units
FROM $database.departures AS part
LEFT JOIN (
  SELECT item.orderid.s AS order_id, max(step.m.at.s) AS shipped_at
  FROM $database.orders
  CROSS JOIN UNNEST(item.steps.l) AS t(step)
  WHERE step.m.action.s = 'fulfil' AND item.fulfilledat.s IS NOT NULL
  GROUP BY item.orderid.s
) AS complete
  ON complete.order_id = part.order_id
WHERE part.action = 'fulfil'
GROUP BY substr(part.changed_at, 1, 10)
ORDER BY day;
