package format

var Damm, Damm32 = damm, damm32
