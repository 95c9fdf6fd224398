"""The currencies that the setting `currency` may name, with their decimals.

Source: ISO 4217, List One (current currencies and funds), as published on 2026-01-01 by its maintenance agency:
www.six-group.com/en/products-services/financial-information/data-standards.html. The codes without a minor unit, such as
gold (XAU) and the test code (XTS), are left out.

Libraries have other decimals: those of Unicode's CLDR, where the forint has none, and which change from release to release.
A shop's stored prices need decimals that stay the same.
"""

from __future__ import annotations

_CODES = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP
        COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR
        JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN
        NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL
        THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

DIGITS = {code: digits for digits, codes in _CODES.items() for code in codes.split()}
"""The number of decimals of each currency, by its code."""
