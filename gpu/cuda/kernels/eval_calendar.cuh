// Days and their dates in the proleptic Gregorian calendar.
// (Howard Hinnant, chrono-Compatible Low-Level Date Algorithms: civil_from_days
// and days_from_civil.)
#pragma once

#include "common.cuh"

DEVICE i64 floor_div(i64 x, i64 y) { return x / y - (x % y < 0); }

struct Civil {
    i64 year, month, day;
};

// civil returns the date of a day counted from 1970-01-01.
DEVICE Civil civil(i64 days) {
    days += 719468;
    i64 era = floor_div(days, 146097);
    i64 doe = days - era * 146097;
    i64 yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    i64 doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    i64 mp = (5 * doy + 2) / 153;
    i64 month = mp < 10 ? mp + 3 : mp - 9;
    return Civil{yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) / 5 + 1};
}

// days_of is the inverse of civil.
DEVICE i64 days_of(i64 year, i64 month, i64 day) {
    year -= month <= 2;
    i64 era = floor_div(year, 400);
    i64 yoe = year - era * 400;
    i64 doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

DEVICE i64 days_in_month(i64 year, i64 month) {
    if (month == 2) return 28 + (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    return 30 + ((month + (month > 7)) & 1);
}

// iso_day returns the day of the week, 1 for Monday.
DEVICE i64 iso_day(i64 days) { return days + 3 - floor_div(days + 3, 7) * 7 + 1; }
