
.
xPlaceholder*
dtype0*
shape:

wWherex*
T0"ª