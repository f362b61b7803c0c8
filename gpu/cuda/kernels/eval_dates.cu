// Operations on dates and times in expression programs.
#include "eval.cuh"
#include "eval_calendar.cuh"
#include "eval_int128.cuh"

// The parts of gpu.DatePart.
enum Part : i32 {
    MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR, DECADE, CENTURY, MILLENNIUM,
    DAY_OF_WEEK, ISO_DAY_OF_WEEK, DAY_OF_YEAR, ISO_YEAR, YEAR_WEEK, ERA, EPOCH, JULIAN
};

// Temporal is the type of eval_extract's argument. a.mode contains it.
enum Temporal : i32 { DATE, TIME, TIMESTAMP };

// iso_week returns the year and week of ISO 8601, which are those of the week's Thursday.
DEVICE void iso_week(i64 days, i64& year, i64& week) {
    i64 thursday = days - iso_day(days) + 4;
    year = civil(thursday).year;
    week = (thursday - days_of(year, 1, 1)) / 7 + 1;
}

// centuries counts from 1 upwards, and from -1 downwards before the year 1.
DEVICE i64 centuries(i64 year, i64 length) { return year > 0 ? (year - 1) / length + 1 : year / length - 1; }

DEVICE i64 day_part(i32 part, i64 days) {
    i64 year, week;
    switch (part) {
    case DAY_OF_WEEK: return iso_day(days) % 7;
    case ISO_DAY_OF_WEEK: return iso_day(days);
    case WEEK: iso_week(days, year, week); return week;
    case ISO_YEAR: iso_week(days, year, week); return year;
    case YEAR_WEEK: iso_week(days, year, week); return year <= 0 ? year * 100 - week : year * 100 + week;
    }
    Civil c = civil(days);
    switch (part) {
    case DAY: return c.day;
    case MONTH: return c.month;
    case QUARTER: return (c.month + 2) / 3;
    case YEAR: return c.year;
    case DECADE: return c.year / 10;
    case CENTURY: return centuries(c.year, 100);
    case MILLENNIUM: return centuries(c.year, 1000);
    case DAY_OF_YEAR: return days - days_of(c.year, 1, 1) + 1;
    case ERA: return c.year > 0;
    }
    return 0;
}

// clock_part returns a part of v units since midnight, where a second has per units.
DEVICE i64 clock_part(i32 part, i64 v, i64 per) {
    switch (part) {
    case HOUR: return v / (3600 * per);
    case MINUTE: return v / (60 * per) % 60;
    case SECOND: return v / per % 60;
    }
    i64 want = part == MILLISECOND ? 1000 : 1000000;
    v %= 60 * per;
    return per >= want ? v / (per / want) : v * (want / per);
}

// eval_extract extracts part p of values with q units a second. Infinity has no parts.
KERNEL(eval_extract, Args) {
    i64 i = global_thread();
    bool infinite = false;
    if (i < a.n) {
        i64 x = (i64)load_int(a.x, i), r = 0;
        infinite = is_infinite(a.infinity_x, x);
        if (a.mode == DATE) {
            if (a.p >= DAY) r = day_part((i32)a.p, x);
        } else {
            i64 day = a.mode == TIME ? 0 : floor_div(x, 86400 * a.q);
            r = a.p >= DAY ? day_part((i32)a.p, day) : clock_part((i32)a.p, x - day * 86400 * a.q, a.q);
        }
        store_int(a, i, r);
    }
    settle(a, i, infinite ? NONE : VALUE);
}

// eval_extract_float extracts the epoch or the Julian day. Infinity has neither.
KERNEL(eval_extract_float, Args) {
    i64 i = global_thread();
    bool infinite = false;
    if (i < a.n) {
        i64 x = (i64)load_int(a.x, i);
        infinite = is_infinite(a.infinity_x, x);
        double r;
        if (a.mode == DATE) {
            r = a.p == EPOCH ? (double)x * 86400 : (double)x + 2440588;
        } else if (a.p == EPOCH) {
            // Like DuckDB: milliseconds and nanoseconds are divided as microseconds, rounded down.
            r = a.q == 1000         ? to_double((i128)x * 1000) / 1e6
                : a.q == 1000000000 ? (double)floor_div(x, 1000) / 1e6
                                    : (double)x / (double)a.q;
        } else {
            i64 day = floor_div(x, 86400 * a.q);
            r = (double)day + 2440588 + (double)(x - day * 86400 * a.q) / (double)(86400 * a.q);
        }
        store_float(a, i, r);
    }
    settle(a, i, infinite ? NONE : VALUE);
}

// eval_date_trunc truncates timestamps with q units a second to part p. It fails if the result is before the first
// timestamp.
KERNEL(eval_date_trunc, Args) {
    i64 i = global_thread();
    i128 r = 0;
    bool infinite = false;
    if (i < a.n) {
        i64 x = (i64)load_int(a.x, i);
        infinite = is_infinite(a.infinity, x);
        if (infinite) {
            r = x;
        } else if (a.p < DAY) {
            i64 unit = 1;
            switch (a.p) {
            case HOUR: unit = 3600 * a.q; break;
            case MINUTE: unit = 60 * a.q; break;
            case SECOND: unit = a.q; break;
            case MILLISECOND: unit = a.q > 1000 ? a.q / 1000 : 1; break;
            case MICROSECOND: unit = a.q > 1000000 ? a.q / 1000000 : 1;
            }
            r = (i128)floor_div(x, unit) * unit;
        } else {
            i64 day = floor_div(x, 86400 * a.q);
            Civil c = civil(day);
            switch (a.p) {
            case WEEK: day -= iso_day(day) - 1; break;
            case MONTH: day = days_of(c.year, c.month, 1); break;
            case QUARTER: day = days_of(c.year, (c.month - 1) / 3 * 3 + 1, 1); break;
            case YEAR: day = days_of(c.year, 1, 1); break;
            case DECADE: day = days_of(c.year / 10 * 10, 1, 1); break;
            case CENTURY: day = days_of(c.year / 100 * 100, 1, 1); break;
            case MILLENNIUM: day = days_of(c.year / 1000 * 1000, 1, 1);
            }
            r = (i128)day * (86400 * a.q);
        }
    }
    settle_int(a, i, r, VALUE, infinite);
}

// eval_make_date returns the date of year x, month y and day z.
KERNEL(eval_make_date, Args) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    if (i < a.n) {
        constexpr i64 YEARS = 6000000; // more years than all dates have, before and after
        i64 year = (i64)load_int(a.x, i), month = (i64)load_int(a.y, i), day = (i64)load_int(a.z, i);
        if (year < -YEARS || year > YEARS || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) outcome = FAILED;
        else r = days_of(year, month, day);
    }
    settle_int(a, i, r, outcome);
}

// eval_add_months adds calendar months to timestamps with q units a second. The day is limited to the end of the month.
KERNEL(eval_add_months, Args) {
    i64 i = global_thread();
    i128 r = 0;
    Outcome outcome = VALUE;
    bool infinite = false;
    if (i < a.n) {
        i64 x = (i64)load_int(a.x, i), months = (i64)load_int(a.y, i);
        infinite = is_infinite(a.infinity, x);
        // 2^63 seconds are less than 2^39 years, so more months than that overflow.
        if (infinite) {
            r = x;
        } else if (months > 1ll << 40 || months < -(1ll << 40)) {
            outcome = FAILED;
        } else {
            i64 day = floor_div(x, 86400 * a.q);
            i64 clock = x - day * 86400 * a.q;
            Civil c = civil(day);
            i64 month = c.year * 12 + c.month - 1 + months;
            i64 year = floor_div(month, 12);
            month = month - year * 12 + 1;
            i64 last = days_in_month(year, month);
            day = days_of(year, month, c.day < last ? c.day : last);
            r = (i128)day * (86400 * a.q);
            if (r != (i64)r) outcome = FAILED; // midnight itself must be a timestamp
            r += clock;
        }
    }
    settle_int(a, i, r, outcome, infinite);
}
