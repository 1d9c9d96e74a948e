"""Commands that fit the models of `profiles` and say how far they are off: `python -m laboratory.fits.model_error` and
others. Whoever changes a model runs them; users do not need them.
"""
