"""Only so that Django knows the model: Evenbeat migrates its tables itself."""

from django.db import migrations

from evenbeat.contrib.django.models import DjangoJob


class InitialMigration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="DjangoJob",
            fields=[(field.name, field.clone()) for field in DjangoJob._meta.local_fields],
            options={
                "managed": False,
                "db_table": DjangoJob._meta.db_table,
                "ordering": ("-id",),
                "verbose_name": "job",
            },
        ),
    )


Migration = InitialMigration  # the name that Django looks for
