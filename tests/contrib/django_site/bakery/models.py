from django.db import models


class Loaf(models.Model):
    kind = models.TextField()
